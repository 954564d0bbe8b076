//! Backends: web servers, and any protocol in TLS.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use hsmux_suite::{PATIENCE, until};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use rustix::process::Signal;

use crate::first_answer::connect;
use crate::rig::{BOTH, Gateway};

/// Serves every connection on a new port with a function, until the test ends.
pub fn backend(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// A reserved port. Only the test can listen on it.
pub struct Port {
    pub address: String,
    _taken: OwnedFd,
}

impl Port {
    pub fn taken() -> Self {
        let taken = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a socket");
        set_socket_reuseaddr(&taken, true).expect("a port for two");
        bind(&taken, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let address = getsockname(&taken).expect("an address");
        let address = SocketAddr::try_from(address).expect("an address of IP");
        Self {
            address: address.to_string(),
            _taken: taken,
        }
    }
}

pub fn in_front_of(scheme: &str, address: &str, more: &str) -> Gateway {
    let site = format!("[[site]]\n{BOTH}\nbackend = \"{scheme}://{address}\"\n{more}");
    Gateway::start(Gateway::prepare(), "", &site)
}

/// The head of a request, in lower case. Empty if the other side has closed.
pub fn head(reader: &mut impl BufRead) -> String {
    let mut head = String::new();
    while reader.read_line(&mut head).is_ok_and(|length| length > 2) {}
    head.to_ascii_lowercase()
}

/// A request's head and body. Empty if the other side has closed.
pub fn request(reader: &mut impl BufRead) -> String {
    let mut text = head(reader);
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
    reader.read_exact(&mut body).expect("a body");
    text.push_str(&String::from_utf8(body).expect("text"));
    text
}

/// Answers each request with its own head and body.
pub fn mirror(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
    loop {
        let text = request(&mut reader);
        if text.is_empty() {
            return;
        }
        let length = text.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nKeep-Alive: timeout=9\r\n\r\n{text}"
        );
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn backends_get_the_true_address_of_a_client() {
    let gateway = in_front_of("http", &backend(mirror), "");
    for version in ["--http1.1", "--http2"] {
        let options =
            format!("{version} --header X-Forwarded-For:6.6.6.6 --header X-Mine:1 --data body");
        let said = gateway.curl("a.test", "/path?query=1", &options);
        said.says(" 200")
            .says("post /path?query=1 http/1.1")
            .says("host: a.test")
            .says("x-forwarded-for: 127.0.0.1")
            .says("x-forwarded-proto: https")
            .says("x-mine: 1")
            .says("body")
            .says("strict-transport-security")
            .never_says("6.6.6.6")
            .never_says("Keep-Alive");
    }
    assert_eq!(
        gateway.metric("hsmux_gateway_requests_total{class=\"2xx\"}"),
        2
    );
}

#[test]
fn connections_to_backends_are_reused_and_closed_when_idle() {
    let (tell, told) = mpsc::channel();
    let (close, closed) = mpsc::channel();
    let closed = Mutex::new(closed);
    let address = backend(move |stream| {
        let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
        tell.send("open").expect("the test");
        while !head(&mut reader).is_empty() {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhere\n";
            (&stream).write_all(answer).expect("the gateway");
            if closed.lock().expect("the test").try_recv().is_ok() {
                stream.shutdown(Shutdown::Write).expect("an end");
            }
        }
        tell.send("closed").expect("the test");
    });
    let gateway = in_front_of("http", &address, "");
    let ask = || {
        gateway.curl("a.test", "/", "").says("here");
    };
    let happens = |what| assert_eq!(told.recv_timeout(PATIENCE), Ok(what));
    ask();
    happens("open");
    close.send(()).expect("the backend");
    ask();
    happens("closed");
    ask();
    // The gateway closes it after a while.
    for what in ["open", "closed"] {
        happens(what);
    }
    ask();
    happens("open");
}

/// Answers with what it has read: a PROXY header, and the line after it.
pub fn hear(stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
    let (mut proxy, mut line) = (String::new(), String::new());
    reader.read_line(&mut proxy).expect("a header");
    reader.read_line(&mut line).expect("a line");
    let mut stream = stream;
    write!(stream, "heard {proxy}and {line}").expect("a client");
}

#[test]
fn any_protocol_is_relayed_behind_a_proxy_header() {
    let gateway = in_front_of("tcp", &backend(hear), "send_proxy = \"v1\"");
    let said = gateway.s_client("-quiet", "a line\n");
    assert!(
        said.contains("heard PROXY TCP4 127.0.0.1 127.0.0.1 "),
        "{said}"
    );
    assert!(said.contains("and a line"), "{said}");
}

#[test]
fn a_backend_that_is_down_gives_502_and_a_late_one_504() {
    let nobody = Port::taken();
    let gateway = in_front_of("http", &nobody.address, "");
    gateway.curl("a.test", "/", "").says(" 502");
    let silent = |stream: TcpStream| drop((&stream).read_to_end(&mut Vec::new()));
    let gateway = in_front_of("http", &backend(silent), "backend_timeout = \"200ms\"");
    gateway.curl("a.test", "/", "").says(" 504");
    assert_eq!(
        gateway.metric("hsmux_gateway_requests_total{class=\"5xx\"}"),
        1
    );
}

/// Neither the wait for an answer nor a pause within it counts as idle time.
#[test]
fn a_client_that_waits_for_its_backend_is_not_idle() {
    let slow = Duration::from_millis(2500);
    let address = backend(move |mut stream| {
        head(&mut BufReader::new(stream.try_clone().expect("a copy")));
        for part in ["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nlate", " but\n"] {
            thread::sleep(slow);
            stream.write_all(part.as_bytes()).expect("the gateway");
        }
    });
    let site = format!("[[site]]\n{BOTH}\nbackend = \"http://{address}\"");
    let gateway = Gateway::start(Gateway::prepare(), "idle_timeout = \"1s\"", &site);
    for version in ["--http1.1", "--http2"] {
        gateway.curl("a.test", "/", version).says("late but");
    }
}

#[test]
fn the_client_address_comes_from_the_proxy_header() {
    let site = format!("[[site]]\n{BOTH}\nbackend = \"http://{}\"", backend(mirror));
    let gateway = Gateway::start(Gateway::prepare(), "proxy_protocol = true", &site);
    let said = gateway.curl("a.test", "/", "--haproxy-protocol");
    said.says(" 200").says("x-forwarded-for: 127.0.0.1");
    gateway.curl("a.test", "/", "").never_says(" 200");
    until("the one without a header is counted", PATIENCE, || {
        let refused = gateway.metric("hsmux_gateway_refused_total{reason=\"proxy-header\"}");
        (refused == 1).then_some(())
    });
}

/// A balancer that checks `/health` chooses another host before a client is refused.
#[test]
fn health_announces_the_end_while_clients_are_still_served() {
    let site = format!("[[site]]\n{BOTH}\nbackend = \"http://{}\"", backend(mirror));
    let lines = "leave_time = \"120s\"";
    let mut gateway = Gateway::start(Gateway::prepare(), lines, &site);
    let daemon = gateway.rig.daemon.as_ref().expect("a daemon");
    daemon.signal(Signal::TERM);
    until("the end is announced", PATIENCE, || {
        gateway.health().contains("503").then_some(())
    });
    gateway.curl("a.test", "/", "").says(" 200");
    gateway.rig.kill();
}

#[test]
fn a_request_under_way_at_the_end_is_answered() {
    let (tell, told) = mpsc::channel();
    let (go, gone) = mpsc::channel();
    let gone = Mutex::new(gone);
    let address = backend(move |mut stream| {
        head(&mut BufReader::new(stream.try_clone().expect("a copy")));
        tell.send(()).expect("the test");
        gone.lock().expect("the test").recv().expect("the test");
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlate\n";
        stream.write_all(answer.as_bytes()).expect("a client");
    });
    let mut gateway = in_front_of("http", &address, "");
    thread::scope(|scope| {
        let client = scope.spawn(|| gateway.curl("a.test", "/", ""));
        told.recv().expect("a request");
        let daemon = gateway.rig.daemon.as_ref().expect("a daemon");
        daemon.signal(Signal::TERM);
        until("no more connections", PATIENCE, || {
            TcpStream::connect(&gateway.address).err()
        });
        go.send(()).expect("the backend");
        client.join().expect("a client").says("late");
    });
    gateway.rig.stop();
}

/// The gateway does not see where a request of a `tcp://` connection ends.
#[test]
fn an_open_tcp_connection_is_cut_after_the_drain_timeout() {
    let address = backend(|mut stream| {
        let mut reader = stream.try_clone().expect("a copy");
        let _ = io::copy(&mut reader, &mut stream);
    });
    let site = format!("[[site]]\n{BOTH}\nbackend = \"tcp://{address}\"");
    let lines = "drain_timeout = \"5s\"";
    let mut gateway = Gateway::start(Gateway::prepare(), lines, &site);
    let mut client = connect(&gateway);
    let mut echo = || {
        client.write_all(b"ping").expect("the gateway");
        client.read_exact(&mut [0; 4]).expect("an echo");
    };
    echo();
    let daemon = gateway.rig.daemon.as_ref().expect("a daemon");
    daemon.signal(Signal::TERM);
    until("no more connections", PATIENCE, || {
        TcpStream::connect(&gateway.address).err()
    });
    echo();
    let end = client.read(&mut [0]).map_err(|error| error.kind());
    let is_cut = !matches!(end, Ok(1) | Err(ErrorKind::WouldBlock));
    assert!(is_cut, "{end:?}");
    gateway.rig.stop();
}
