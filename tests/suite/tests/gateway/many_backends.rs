//! Several backends for a site: they take turns, and no request is lost if one is down.

use std::fs;
use std::io::{BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::thread::{self, JoinHandle};

use hsmux_suite::{PATIENCE, until};

use crate::backends::{Port, backend, head, hear, mirror};
use crate::rig::{BOTH, Gateway};

fn in_front_of_all(urls: &[String], more: &str) -> Gateway {
    let site = format!("[[site]]\n{BOTH}\nbackend = {urls:?}\n{more}");
    Gateway::start(Gateway::prepare(), "", &site)
}

fn http(port: &Port) -> String {
    format!("http://{}", port.address)
}

pub fn up(gateway: &Gateway, url: &str) -> u64 {
    gateway.metric(&format!(
        "hsmux_gateway_backend_up{{backend=\"{url}\",site=\"*\"}}"
    ))
}

pub fn log(gateway: &Gateway) -> String {
    gateway.rig.daemon.as_ref().expect("a daemon").log()
}

/// A server that answers with its name, and can be stopped.
struct Server {
    address: String,
    ends: Arc<AtomicBool>,
    listens: JoinHandle<Vec<(TcpStream, JoinHandle<()>)>>,
}

impl Server {
    fn start(port: &Port, name: &'static str) -> Self {
        let listener = TcpListener::bind(&port.address).expect("the port");
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let listens = thread::spawn(move || {
            let streams = listener.incoming().map_while(Result::ok);
            let streams = streams.take_while(|_| !ended.load(Ordering::Relaxed));
            let serve = |stream: TcpStream| {
                let copy = stream.try_clone().expect("a copy");
                (stream, thread::spawn(move || say(name, &copy)))
            };
            streams.map(serve).collect()
        });
        Self {
            address: port.address.clone(),
            ends,
            listens,
        }
    }

    /// Stops it: it no longer listens, and both sides have closed all connections.
    fn stop(self) {
        self.ends.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(&self.address));
        for (stream, serves) in self.listens.join().expect("a listener") {
            let _ = stream.shutdown(Shutdown::Write);
            serves.join().expect("a connection");
        }
    }
}

/// Answers each request with this name.
fn say(name: &str, mut stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    while !head(&mut reader).is_empty() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length";
        write!(stream, "{head}: {}\r\n\r\n{name}", name.len()).expect("the gateway");
    }
}

#[test]
fn backends_take_turns_and_one_that_is_down_is_skipped() {
    let ports = [Port::taken(), Port::taken(), Port::taken()];
    let names = ["server-a", "server-b", "server-c"];
    let mut servers: Vec<_> = ports
        .iter()
        .zip(names)
        .map(|(port, name)| Server::start(port, name))
        .collect();
    let gateway = in_front_of_all(&ports.each_ref().map(http), "");
    let ask = || {
        let said = gateway.curl("a.test", "/[1-60]", "").out;
        names.map(|name| said.matches(name).count())
    };
    assert_eq!(ask(), [20, 20, 20]);
    servers.remove(1).stop();
    // The gateway tries it again now and then, which only shifts the turns.
    let [a, b, c] = ask();
    assert!(a + c == 60 && b == 0 && a.abs_diff(c) < 10, "{a} {b} {c}");
    assert_eq!(
        ports.each_ref().map(|port| up(&gateway, &http(port))),
        [1, 0, 1]
    );
}

#[test]
fn no_request_fails_when_a_backend_stops_and_comes_back() {
    let ports = [Port::taken(), Port::taken()];
    let [a, _b] =
        [(0, "server-a"), (1, "server-b")].map(|(port, name)| Server::start(&ports[port], name));
    let gateway = in_front_of_all(&ports.each_ref().map(http), "");
    let (asked, turns) = (AtomicUsize::new(0), RwLock::new(()));
    let ask = |version: &str| {
        for _ in 0..20 {
            let _turn = turns.read().expect("a turn");
            let said = gateway.curl("a.test", "/", version);
            said.says(" 200").says("server-");
            asked.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for version in ["--http1.1", "--http2", "--http1.1", "--http2"] {
            scope.spawn(move || ask(version));
        }
        until("half of it is done", PATIENCE, || {
            (asked.load(Ordering::Relaxed) >= 40).then_some(())
        });
        // A request that was sent on a new connection is lost if the server ends. So none is under way.
        let _all = turns.write().expect("all turns");
        a.stop();
    });
    assert_eq!(asked.into_inner(), 80);
    assert_eq!(up(&gateway, &http(&ports[0])), 0);
    let _a = Server::start(&ports[0], "server-a");
    until("it is asked again", PATIENCE, || {
        let said = gateway.curl("a.test", "/", "");
        said.says(" 200").out.contains("server-a").then_some(())
    });
    assert_eq!(up(&gateway, &http(&ports[0])), 1);
    let told = log(&gateway).matches("is back").count();
    assert_eq!(told, 1, "{}", log(&gateway));
}

#[test]
fn a_request_to_a_backend_that_is_down_goes_to_another_with_its_body() {
    let nobody = Port::taken();
    let gateway = in_front_of_all(&[http(&nobody), format!("http://{}", backend(mirror))], "");
    let ask = |version: &str| {
        let said = gateway.curl("a.test", "/", &format!("{version} --data the-body"));
        said.says(" 200").says("the-body");
    };
    for version in ["--http1.1", "--http1.1", "--http2", "--http2"] {
        ask(version);
    }
    // The health of backends survives a reload of the sites.
    let certificate = gateway.rig.path("ec.pem");
    let same = fs::read(&certificate).expect("a certificate");
    fs::write(&certificate, same).expect("the certificate");
    until("the sites are read again", PATIENCE, || {
        log(&gateway).contains("read its sites again").then_some(())
    });
    for _ in 0..2 {
        ask("");
    }
    let told = log(&gateway).matches("is left out").count();
    assert_eq!(told, 1, "{}", log(&gateway));
}

#[test]
fn a_backend_that_fails_is_left_out_for_a_while() {
    let tried = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tried);
    // It does not speak TLS.
    let bad = backend(move |stream| {
        count.fetch_add(1, Ordering::Relaxed);
        drop(stream);
    });
    let good = format!("http://{}", backend(mirror));
    let gateway = in_front_of_all(&[format!("https://{bad}"), good], "");
    let said = gateway.curl("a.test", "/[1-100]", "").out;
    assert_eq!(said.matches(" 200").count(), 100, "{said}");
    // If it were not left out, every other request would have tried it.
    let tried = tried.load(Ordering::Relaxed);
    assert!((1..25).contains(&tried), "{tried}");
}

#[test]
fn if_all_are_down_the_first_that_is_back_is_used_at_once() {
    let ports = [Port::taken(), Port::taken()];
    let gateway = in_front_of_all(&ports.each_ref().map(http), "");
    let ask = || gateway.curl("a.test", "/", "");
    for _ in 0..4 {
        ask().says(" 502");
    }
    let _back = Server::start(&ports[1], "server-b");
    ask().says(" 200").says("server-b");
    assert_eq!(
        ports.each_ref().map(|port| up(&gateway, &http(port))),
        [0, 1]
    );
}

#[test]
fn tcp_goes_to_a_backend_that_is_up() {
    let nobody = Port::taken();
    let urls = [&nobody.address, &backend(hear)].map(|at| format!("tcp://{at}"));
    let gateway = in_front_of_all(&urls, "send_proxy = \"v1\"");
    for _ in 0..3 {
        let said = gateway.s_client("-quiet", "a line\n");
        assert!(said.contains("and a line"), "{said}");
    }
    assert_eq!(urls.each_ref().map(|url| up(&gateway, url)), [0, 1]);
    assert_eq!(gateway.metric("hsmux_gateway_refused_total"), 0);
}

/// Only requests that it got on a new connection are lost.
#[test]
fn a_backend_that_closes_without_an_answer_is_left_out_for_a_while() {
    let tried = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tried);
    let bad = backend(move |stream| {
        head(&mut BufReader::new(&stream));
        count.fetch_add(1, Ordering::Relaxed);
    });
    let urls = [bad, backend(mirror)].map(|at| format!("http://{at}"));
    let gateway = in_front_of_all(&urls, "");
    let said = gateway.curl("a.test", "/[1-100]", "").out;
    let tried = tried.load(Ordering::Relaxed);
    assert!((1..25).contains(&tried), "{tried}");
    assert_eq!(said.matches(" 502").count(), tried, "{said}");
    assert_eq!(said.matches(" 200").count(), 100 - tried, "{said}");
    assert_eq!(urls.each_ref().map(|url| up(&gateway, url)), [0, 1]);
}

#[test]
fn an_aborted_request_does_not_mark_the_backend_as_down() {
    let url = format!("http://{}", backend(mirror));
    let gateway = in_front_of_all(std::slice::from_ref(&url), "");
    let ask = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n";
    let said = gateway.s_client("-quiet -alpn http/1.1", ask);
    assert!(said.contains("400 Bad Request"), "{said}");
    let log = log(&gateway);
    assert!(!log.contains("has not answered"), "{log}");
    assert_eq!(up(&gateway, &url), 1);
}
