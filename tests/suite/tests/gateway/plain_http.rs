//! HTTP without TLS: redirects to https, and refusals.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use hsmux_suite::{Finished, PATIENCE, Run, until};
use rustix::process::Signal;

use crate::rig::{BOTH, FOLDER, Gateway, configure};

pub const CHALLENGES: &str = "/.well-known/acme-challenge";

fn site(names: &str) -> String {
    format!("[[site]]\nnames = [{names}]\n{BOTH}\n{FOLDER}")
}

/// A gateway with the site `a.test`, and a challenge in the folder of the ACME client.
pub fn with(lines: &str, acme: &str) -> Gateway {
    let rig = Gateway::prepare();
    let folder = rig.path(&format!("acme{CHALLENGES}"));
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("tok-en_1"), "tok-en_1.thumb").expect("a challenge");
    fs::write(folder.join("secret"), "a secret\n").expect("a secret");
    std::os::unix::fs::symlink(rig.path("secret.txt"), folder.join("link")).expect("a link");
    let lines = format!("http = [\"127.0.0.1:0\"]\nacme = \"{acme}\"\n{lines}");
    Gateway::start(rig, &lines, &site("\"a.test\", \"*.wild.test\""))
}

/// curl's output for `http://HOST/PATH`.
pub fn curl(gateway: &Gateway, host: &str, path: &str, more: &str) -> Finished {
    curl_at(&gateway.http, host, path, more)
}

/// curl's output for a gateway or a balancer at this address.
pub fn curl_at(address: &str, host: &str, path: &str, more: &str) -> Finished {
    Run::new("curl")
        .args("--silent --show-error --path-as-is --include --max-time 60")
        .args(&format!("--connect-to {host}:80:{address}"))
        .args(more)
        .arg(format!("http://{host}{path}"))
        .finish()
}

/// Sends bytes, and returns the answer.
fn say(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    // The gateway may answer and close before all is sent.
    let _ = stream.write_all(bytes);
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

/// Waits until so many connections were refused for this reason.
fn refused(gateway: &Gateway, reason: &str, times: u64) {
    let metric = format!("hsmux_gateway_refused_total{{reason=\"{reason}\"}}");
    until(&metric, PATIENCE, || {
        (gateway.metric(&metric) >= times).then_some(())
    });
}

/// The number of requests with this kind of answer.
pub fn count(gateway: &Gateway, answer: &str) -> u64 {
    gateway.metric(&format!(
        "hsmux_gateway_plain_requests_total{{answer=\"{answer}\"}}"
    ))
}

#[test]
fn requests_are_redirected_to_the_same_site() {
    let gateway = with("", "acme");
    for (host, path, location) in [
        (
            "a.test",
            "/page.txt?a=b%20c",
            "https://a.test/page.txt?a=b%20c",
        ),
        ("A.Test", "/", "https://a.test/"),
        (
            "any.wild.test",
            "//elsewhere.test/",
            "https://any.wild.test//elsewhere.test/",
        ),
        (
            "a.test",
            "/.well-known/%61cme-challenge/tok-en_1",
            "https://a.test/.well-known/%61cme-challenge/tok-en_1",
        ),
    ] {
        let answer = curl(&gateway, host, path, "");
        answer
            .says(" 308 ")
            .says(&format!("location: {location}\r\n"));
    }
    // A body does not discard the answer.
    fs::write(gateway.rig.path("body"), vec![b'a'; 200_000]).expect("a body");
    let body = gateway.rig.path("body");
    let post = format!("--header Expect: --data-binary @{}", body.display());
    curl(&gateway, "a.test", "/form", &post).says(" 308 ");
    for host in [
        "elsewhere.test",
        "a.test.elsewhere.test",
        "x.any.wild.test",
        "127.0.0.1",
    ] {
        let answer = curl(&gateway, host, "/page.txt", "");
        answer.says(" 421 ").never_says("location:");
    }
    assert_eq!(
        (count(&gateway, "redirect"), count(&gateway, "refused")),
        (5, 4)
    );
}

#[test]
fn a_redirect_leads_nowhere_else() {
    let gateway = with("", "acme");
    let own = gateway.address.rsplit_once(':').expect("a port").1;
    for (request, status, location) in [
        // If the client names a port, it gets the gateway's own.
        (
            "GET /a HTTP/1.1\r\nHost: a.test:8080\r\n\r\n",
            "308",
            format!("https://a.test:{own}/a\r\n"),
        ),
        (
            "GET http://a.test/a HTTP/1.1\r\nHost: a.test:80\r\n\r\n",
            "308",
            "https://a.test/a\r\n".into(),
        ),
        (
            "GET http://a.test/a HTTP/1.1\r\nHost: elsewhere\r\n\r\n",
            "400",
            String::new(),
        ),
        (
            "GET /a HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n",
            "400",
            String::new(),
        ),
        (
            "GET /a HTTP/1.1\r\nHost: a.test:80:\r\n\r\n",
            "400",
            String::new(),
        ),
        (
            "OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "308",
            "https://a.test/\r\n".into(),
        ),
        (
            "GET /a HTTP/1.1\r\nHost: a.test@elsewhere\r\n\r\n",
            "400",
            String::new(),
        ),
        (
            "GET /a HTTP/1.1\r\nHost: elsewhere/.a.test\r\n\r\n",
            "400",
            String::new(),
        ),
        ("GET /a HTTP/1.0\r\n\r\n", "400", String::new()),
        (
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "405",
            String::new(),
        ),
        (
            "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n",
            "400",
            String::new(),
        ),
    ] {
        let said = say(&gateway.http, request.as_bytes());
        assert!(said.contains(&format!(" {status} ")), "{request}: {said}");
        let told = said.split_once("location: ").map_or("", |(_, rest)| rest);
        assert!(told.starts_with(&location), "{request}: {said}");
        assert_eq!(told.is_empty(), location.is_empty(), "{request}: {said}");
    }
}

#[test]
fn a_connection_has_one_short_request() {
    let gateway = with("", "acme");
    let long = "a".repeat(100_000);
    let long = format!("GET / HTTP/1.1\r\nHost: a.test\r\nX: {long}\r\n\r\n");
    let said = say(&gateway.http, long.as_bytes());
    assert!(said.contains(" 431 "), "{said}");
    let two = b"GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let said = say(&gateway.http, two);
    assert_eq!(said.matches("HTTP/1.1 308").count(), 1, "{said}");
    assert!(said.contains("connection: close"), "{said}");
}

#[test]
fn slow_clients_are_dropped() {
    let gateway = with("idle_timeout = \"1s\"", "acme");
    for begin in ["", "GET / HTTP/1.1\r\nHost: a.te"] {
        assert_eq!(say(&gateway.http, begin.as_bytes()), "");
    }
    refused(&gateway, "slow", 2);
}

#[test]
fn a_client_that_stays_after_its_answer_is_dropped() {
    let gateway = with("idle_timeout = \"1h\"", "acme");
    let mut stream = TcpStream::connect(&gateway.http).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let begun = Instant::now();
    let request = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    stream.write_all(request).expect("the gateway");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("an answer");
    assert!(said.contains(" 308 "), "{said}");
    until("its slot is free", PATIENCE, || {
        (gateway.metric("hsmux_gateway_connections ") == 0).then_some(())
    });
    let within = Duration::from_secs(2)..Duration::from_secs(60);
    assert!(within.contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

/// Plain HTTP and TLS share the slots.
#[test]
fn a_client_without_a_slot_is_refused() {
    let gateway = with("connections = 16\nsource_connections = 16", "acme");
    let held: Vec<_> = (0..16)
        .map(|_| TcpStream::connect(&gateway.http).expect("a connection"))
        .collect();
    until("all places are taken", PATIENCE, || {
        (gateway.metric("hsmux_gateway_connections ") == 16).then_some(())
    });
    assert_eq!(
        say(&gateway.http, b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"),
        ""
    );
    assert!(
        !gateway
            .curl("a.test", "/page.txt", "")
            .out
            .contains("a page")
    );
    assert!(gateway.metric("hsmux_gateway_refused_total{reason=\"connections\"}") >= 2);
    drop(held);
    until("there is a place again", PATIENCE, || {
        curl(&gateway, "a.test", "/", "")
            .out
            .contains(" 308 ")
            .then_some(())
    });
}

#[test]
fn a_proxy_has_to_send_a_proxy_header() {
    let gateway = with("proxy_protocol = true", "acme");
    curl(&gateway, "a.test", "/", "--haproxy-protocol").says(" 308 ");
    assert_eq!(
        say(&gateway.http, b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"),
        ""
    );
    refused(&gateway, "proxy-header", 1);
}

#[test]
fn plain_http_is_served_while_the_gateway_leaves() {
    let mut gateway = with("leave_time = \"1h\"", "acme");
    let daemon = gateway.rig.daemon.as_ref().expect("a daemon");
    daemon.signal(Signal::TERM);
    until("the end is announced", PATIENCE, || {
        gateway.health().contains(" 503 ").then_some(())
    });
    curl(&gateway, "a.test", "/", "").says(" 308 ");
    gateway.rig.kill_to_the_last();
}

#[test]
fn a_silent_client_does_not_delay_the_end() {
    let mut gateway = with("drain_timeout = \"1h\"\nidle_timeout = \"1h\"", "acme");
    let silent = TcpStream::connect(&gateway.http).expect("a connection");
    until("it is there", PATIENCE, || {
        (gateway.metric("hsmux_gateway_connections ") == 1).then_some(())
    });
    gateway.rig.stop();
    assert!(TcpStream::connect(&gateway.http).is_err());
    drop(silent);
}

#[test]
fn errors_at_the_start_name_what_is_missing() {
    let mut rig = Gateway::prepare();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let site = site("\"a.test\"");
    let mut start = |lines: &str| {
        configure(&mut rig, lines, &site);
        rig.write_config();
        rig.hsmux("gateway").fails()
    };
    start(&format!("http = [\"127.0.0.1:{port}\"]"))
        .says(&format!(
            "[gateway] http 127.0.0.1:{port}: Address already in use"
        ))
        .says(&format!("ss -ltnp sport = :{port}"));
    start("http = [\"127.0.0.1:0\"]\nacme = \"nowhere\"").says("nowhere is no folder: make it");
    start("acme = \"www\"")
        .says("hsmux.toml:")
        .says("give the port, [gateway] http =");
    // Without `acme` a missing certificate is an error.
    fs::remove_file(rig.path("ec.pem")).expect("a certificate");
    configure(&mut rig, "http = [\"127.0.0.1:0\"]", &site);
    rig.write_config();
    rig.hsmux("gateway").fails().says("ec.pem: No such file");
}
