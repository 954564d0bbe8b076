//! A process with a low limit of open files.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, RwLock};
use std::thread;

use hsmux_suite::{PATIENCE, Program, built, until};

use crate::backends::{backend, head, mirror};
use crate::rig::{BOTH, Gateway, configure};

/// A gateway whose process may open so many files.
fn with(files: usize, lines: &str, backend: &str) -> Gateway {
    let mut rig = Gateway::prepare();
    let site = format!("[[site]]\n{BOTH}\nbackend = \"http://{backend}\"");
    // All clients have the same address here.
    let shares = "source_connections = 450\nsource_handshakes = 450";
    configure(&mut rig, &format!("{shares}\n{lines}"), &site);
    Gateway::start_by(rig, |rig| {
        rig.write_config();
        let limit = format!("--nofile={files}:{files}");
        let run = rig.run("prlimit").arg(limit).arg(built(Program::Hsmux));
        rig.start_by(run.arg("serve"));
        rig.wait_for_members(2);
    })
}

/// Connects so many silent clients.
fn silent(gateway: &Gateway, count: u64) -> Vec<TcpStream> {
    let connect = |_| TcpStream::connect(&gateway.address).expect("a connection");
    let clients = (0..count).map(connect).collect();
    until("all are connected", PATIENCE, || {
        (gateway.metric("hsmux_gateway_connections") == count).then_some(())
    });
    clients
}

fn refused(gateway: &Gateway) -> u64 {
    gateway.metric("hsmux_gateway_refused_total{reason=\"files\"}")
}

/// Three quarters of the files are for clients, one each. Backends have others.
#[test]
fn waiting_handshakes_leave_files_for_backends() {
    let gateway = with(600, "handshake_timeout = \"300s\"", &backend(mirror));
    let mut waiting = silent(&gateway, 449);
    gateway.curl("a.test", "/", "").says(" 200");
    assert_eq!(refused(&gateway), 0);
    until(
        "it has gone, and its connection to the backend",
        PATIENCE,
        || (gateway.metric("hsmux_gateway_files_left") == 76).then_some(()),
    );
    waiting.push(TcpStream::connect(&gateway.address).expect("a connection"));
    until("the last place is taken", PATIENCE, || {
        (gateway.metric("hsmux_gateway_connections") == 450).then_some(())
    });
    gateway.curl("a.test", "/", "").never_says(" 200");
    assert_eq!(refused(&gateway), 1);
    drop(waiting);
    until("there is room again", PATIENCE, || {
        let said = gateway.curl("a.test", "/", "").out;
        said.contains(" 200").then_some(())
    });
}

/// Each request of a client takes its own connection to a backend that does not answer yet.
#[test]
fn requests_without_a_file_do_not_mark_the_backend_as_down() {
    let answers = Arc::new(RwLock::new(()));
    let wait = Arc::clone(&answers);
    let address = backend(move |mut stream| {
        head(&mut BufReader::new(stream.try_clone().expect("a copy")));
        drop(wait.read());
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        // The client may have gone.
        let _ = stream.write_all(answer.as_bytes());
    });
    let gateway = with(600, "handshake_timeout = \"300s\"", &address);
    let _silent = silent(&gateway, 445);
    let nobody = answers.write().expect("the backend");
    let options = "--http2 --parallel --parallel-max 100 --write-out ;%{http_code};";
    let codes = thread::scope(|scope| {
        let client = scope.spawn(|| gateway.curl("a.test", "/[1-100]", options).out);
        until("some have no file", PATIENCE, || {
            let failed = gateway.metric("hsmux_gateway_requests_total{class=\"5xx\"}");
            (failed >= 10).then_some(())
        });
        drop(nobody);
        client.join().expect("a client")
    });
    let count = |code| codes.matches(code).count();
    let (served, apologies) = (count(";200;"), count(";503;"));
    assert_eq!(served + apologies, 100, "{codes}");
    assert!(served >= 10 && apologies >= 10, "{served} {apologies}");
    assert_eq!(gateway.metric("hsmux_gateway_backend_up"), 1);
    gateway.curl("a.test", "/", "").says(" 200");
}
