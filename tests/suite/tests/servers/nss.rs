//! A server of NSS, `selfserv`, whose database has the module.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use hsmux_suite::{BackgroundLoad, PATIENCE, Process, Rig, Run, until};
use rustix::process::{Pid, Signal, kill_process};

use crate::web::with_certificates;

/// NSS looks once a second whether its token is there, when it is asked for something.
const LOOKS_AGAIN: Duration = Duration::from_millis(1500);

#[test]
fn an_nss_server_outlives_worker_and_daemon() {
    let mut rig = with_certificates();
    rig.start();
    database(&rig);
    let (_server, port) = until("selfserv on a free port", PATIENCE, || on_a_port(&rig));
    let roots = rig.path("both.pem");
    for (version, key) in [("1.2", "rsa"), ("1.2", "ec"), ("1.3", "rsa"), ("1.3", "ec")] {
        s_client(&rig, port, version, key);
    }
    let served = served(&rig);
    let load = BackgroundLoad::start(4, move || get(&roots, port));
    until("both members sign", PATIENCE, || {
        let now = self::served(&rig);
        now.iter()
            .zip(&served)
            .all(|(now, then)| now > then)
            .then_some(())
    });
    let worker = Pid::from_raw(rig.workers()[0].cast_signed()).expect("a process");
    kill_process(worker, Signal::KILL).expect("a worker to kill");
    load.goes_on(20);
    load.none_failed();

    rig.kill_to_the_last();
    let killed = Instant::now();
    while killed.elapsed() < LOOKS_AGAIN {
        get(&rig.path("both.pem"), port).fails();
    }
    rig.start();
    get(&rig.path("both.pem"), port).ok();
}

/// The signatures of each member.
fn served(rig: &Rig) -> Vec<u64> {
    let status = rig.status();
    let members = status["members"].as_array().expect("members");
    members
        .iter()
        .map(|member| member["served"].as_u64().expect("a number"))
        .collect()
}

fn database(rig: &Rig) {
    fs::create_dir(rig.path("nss")).unwrap();
    rig.run("certutil")
        .args("-N --empty-password -d sql:nss")
        .ok();
    rig.run("modutil")
        .args("-dbdir sql:nss -force -add hsmux -libfile")
        .arg(rig.module())
        .ok();
}

fn on_a_port(rig: &Rig) -> Option<(Process, u16)> {
    let port = TcpListener::bind("127.0.0.1:0")
        .ok()?
        .local_addr()
        .ok()?
        .port();
    let run = rig
        .run("selfserv")
        .args("-d sql:nss -n web:rsa -e web:ec -f pool.pin -V tls1.2:tls1.3 -N")
        .args(&format!("-p {port}"));
    let mut process = Process::start("selfserv", &rig.path(""), run);
    let roots = rig.path("both.pem");
    let serves = until("selfserv answers, or has ended", PATIENCE, || {
        if get(&roots, port).finish().code == Some(0) {
            return Some(true);
        }
        (!process.running()).then_some(false)
    });
    serves.then_some((process, port))
}

/// It chooses the key by itself, so that the name is nobody's.
fn get(roots: &Path, port: u16) -> Run {
    Run::new("curl")
        .args("--silent --show-error --fail --max-time 120 --cacert")
        .arg(roots)
        .args(&format!(
            "--connect-to rsa.test:443:127.0.0.1:{port} https://rsa.test/"
        ))
}

fn s_client(rig: &Rig, port: u16, version: &str, key: &str) {
    let algorithm = if key == "rsa" {
        "rsa_pss_rsae_sha256"
    } else {
        "ECDSA+SHA256"
    };
    let version = version.replace('.', "_");
    rig.run("openssl")
        .args(&format!(
            "s_client -connect 127.0.0.1:{port} -ign_eof -tls{version}"
        ))
        .args(&format!(
            "-sigalgs {algorithm} -CAfile {key}.pem -verify_return_error"
        ))
        .input("GET / HTTP/1.0\r\n\r\n")
        .ok()
        .says("Verification: OK");
}
