//! Backends that speak HTTP/2: nginx, which answers with details of the request.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hsmux_suite::{Nginx, PATIENCE, Process, Run, on_a_free_port, source, until};

use crate::backends::{backend, head, in_front_of, mirror};
use crate::many_backends::{log, up};
use crate::tls_backends::{believing, certify};

/// nginx, with or without TLS, in front of a server of HTTP/1.1.
struct Server {
    process: Process,
    port: u16,
}

impl Server {
    fn start(folder: &Path, tls: bool, behind: &str) -> Self {
        certify(folder, "IP:127.0.0.1");
        let (process, port) = on_a_free_port(
            "nginx",
            |port| Self::on_port(folder, port, tls, behind),
            |port| TcpStream::connect(("127.0.0.1", port)).is_ok(),
        );
        Self { process, port }
    }

    fn on_port(folder: &Path, port: u16, tls: bool, behind: &str) -> Process {
        let tls = if tls { "ssl" } else { "" };
        let text = format!(
            r#"daemon off; master_process off; user root; pid nginx.pid; error_log stderr warn;
events {{ worker_connections 2048; }}
http {{
    client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp;
    uwsgi_temp_path temp; scgi_temp_path temp;
    access_log off;
    keepalive_requests 150;
    http2_max_concurrent_streams 40;
    server {{
        listen 127.0.0.1:{port} {tls} http2;
        ssl_certificate cert.pem; ssl_certificate_key key.pem;
        location / {{
            return 200 "$server_protocol $scheme $host te=$http_te $http_x_forwarded_proto line=$connection\n";
        }}
        location /behind {{ proxy_pass http://{behind}; }}
        location /ill {{ return 500; }}
    }}
}}
"#
        );
        fs::write(folder.join("nginx.conf"), text).expect("write nginx.conf");
        let run = Run::new("nginx")
            .arg("-p")
            .arg(folder)
            .args("-e stderr -c nginx.conf");
        Process::start("nginx", folder, run)
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// The connections on which nginx got the requests.
fn lines(said: &str) -> BTreeSet<&str> {
    let lines = said.lines().filter_map(|line| line.split_once("line="));
    lines.map(|(_, number)| number).collect()
}

#[test]
fn requests_go_to_a_server_of_http2() {
    let folder = tempfile::tempdir().expect("a folder");
    for (url, scheme) in [("h2c", "http"), ("h2", "https")] {
        let tls = url == "h2";
        let server = Server::start(folder.path(), tls, &backend(mirror));
        let roots = believing(&folder.path().join("cert.pem"));
        let roots = if tls { &roots } else { "" };
        let gateway = in_front_of(url, &server.address(), roots);
        for version in ["--http1.1", "--http2"] {
            let said = gateway.curl("a.test", "/x?[1-20]", version);
            let asked = format!("HTTP/2.0 {scheme} a.test te= https ");
            assert_eq!(said.out.matches(&asked).count(), 20, "{}", said.out);
            assert_eq!(lines(&said.out).len(), 1, "{}", said.out);
        }
        let said = gateway.curl("a.test", "/x", "--http2 -H TE:trailers");
        said.says("te=trailers");
        let body = "b".repeat(99_999);
        let said = gateway.curl("a.test", "/behind", &format!("--http2 --data {body}"));
        said.says(" 200").says(&body);
        let asks = "-H Connection:Upgrade -H Upgrade:websocket --http1.1";
        gateway.curl("a.test", "/x", asks).says(" 501");
    }
}

#[test]
fn grpc_passes() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = source().join("tests/suite/programs/rpc.py");
    let run = Run::new("/usr/bin/python3").arg(&program).arg("serve");
    let mut service = Process::start("rpc", folder.path(), run);
    service.wait_for("port=");
    let said = service.log();
    let port = said
        .split_once("port=")
        .and_then(|(_, rest)| rest.split_once('.'));
    let (port, _) = port.expect("a port");
    let gateway = in_front_of("h2c", &format!("127.0.0.1:{port}"), "");
    let roots = ["ec.pem", "rsa.pem"].map(|name| {
        let file = gateway.rig.path(name);
        fs::read_to_string(file).expect("a certificate")
    });
    fs::write(folder.path().join("roots.pem"), roots.concat()).expect("roots");
    Run::new("/usr/bin/python3")
        .arg(&program)
        .args(&format!("call {} roots.pem", gateway.port()))
        .dir(folder.path())
        .ok()
        .says("all is well");
}

/// Answers only when so many requests have arrived.
fn together(count: usize) -> impl Fn(TcpStream) + Send + Sync + 'static {
    let there = Arc::new(AtomicUsize::new(0));
    move |mut stream| {
        head(&mut BufReader::new(&mut stream));
        there.fetch_add(1, Ordering::Relaxed);
        until("all others have come", PATIENCE, || {
            (there.load(Ordering::Relaxed) >= count).then_some(())
        });
        let answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nall";
        stream.write_all(answer.as_bytes()).expect("nginx");
    }
}

#[test]
fn concurrent_requests_are_not_limited_by_one_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    // More than one connection allows.
    let server = Server::start(folder.path(), false, &backend(together(230)));
    let gateway = in_front_of("h2c", &server.address(), "");
    let all = "--http2 --parallel --parallel-immediate --parallel-max 230";
    let said = gateway.curl("a.test", "/behind?[1-230]", all);
    assert_eq!(said.out.matches("200").count(), 230, "{}", said.all());
}

#[test]
fn no_request_is_lost_when_the_server_ends_a_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    // nginx ends each connection after 150 requests, and ignores those that are on their way.
    let server = Server::start(folder.path(), false, &backend(mirror));
    let gateway = in_front_of("h2c", &server.address(), "");
    let all = "--http2 --parallel --parallel-immediate --parallel-max 50";
    let said = gateway.curl("a.test", "/x?[1-2000]", all);
    assert_eq!(said.out.matches("line=").count(), 2000, "{}", said.all());
    assert!(lines(&said.out).len() > 10);
}

#[test]
fn a_server_that_comes_back_is_asked_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(folder.path(), false, &backend(mirror));
    let more = "backend_check = \"/up\"\nbackend_check_interval = \"200ms\"";
    for more in ["", more] {
        let gateway = in_front_of("h2c", &server.address(), more);
        let url = format!("h2c://{}", server.address());
        let is = |state: bool| {
            until("it is noticed", PATIENCE, || {
                let said = gateway.curl("a.test", "/x", "");
                (said.out.contains("HTTP/2.0") == state && up(&gateway, &url) == u64::from(state))
                    .then_some(())
            });
        };
        is(true);
        server.process.kill();
        is(false);
        server.process = Server::on_port(folder.path(), server.port, false, &backend(mirror));
        is(true);
    }
}

#[test]
fn a_server_whose_check_fails_over_http2_is_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), false, &backend(mirror));
    let more = "backend_check = \"/ill\"";
    let gateway = in_front_of("h2c", &server.address(), more);
    let url = format!("h2c://{}", server.address());
    until("it is left out", PATIENCE, || {
        (up(&gateway, &url) == 0).then_some(())
    });
    assert!(log(&gateway).contains("status 500"), "{}", log(&gateway));
}

#[test]
fn a_server_without_http2_is_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let nginx = Nginx::start(folder.path());
    let roots = believing(&nginx.certificate());
    let in_tls = in_front_of("h2", &format!("127.0.0.1:{}", nginx.port()), &roots);
    let in_clear = in_front_of("h2c", &backend(mirror), "");
    for (gateway, why) in [(in_tls, "PROTOCOL"), (in_clear, "it has not answered")] {
        gateway.curl("a.test", "/hello.txt", "").says(" 502");
        let told = log(&gateway);
        assert!(told.contains("is left out") && told.contains(why), "{told}");
    }
}
