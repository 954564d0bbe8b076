//! Backends with TLS: their certificates are verified.

use std::fs;
use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;

use boring::ssl::{NameType, SslAcceptor, SslFiletype, SslMethod, SslRef};
use hsmux_suite::{Nginx, PATIENCE, Run, until};

use crate::backends::{backend, head, in_front_of};
use crate::many_backends::log;
use crate::rig::{BOTH, Gateway};

fn in_front_of_nginx(nginx: &Nginx, roots: &str) -> Gateway {
    in_front_of("https", &format!("127.0.0.1:{}", nginx.port()), roots)
}

pub fn believing(file: &Path) -> String {
    format!("backend_ca = \"{}\"", file.display())
}

#[test]
fn requests_go_to_a_backend_with_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let nginx = Nginx::start(folder.path());
    let gateway = in_front_of_nginx(&nginx, &believing(&nginx.certificate()));
    for version in ["--http1.1", "--http2"] {
        let said = gateway.curl("a.test", "/hello.txt", version);
        said.says(" 200").says("hello, world");
    }
    let asked = nginx.requests();
    let good = |line: &String| line.starts_with("200 TLSv1.3");
    assert!(asked.len() == 2 && asked.iter().all(good), "{asked:?}");
}

/// A certificate for a name.
pub fn certify(folder: &Path, name: &str) {
    Run::new("openssl")
        .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=any")
        .args("-keyout key.pem -out cert.pem -addext")
        .arg(format!("subjectAltName={name}"))
        .dir(folder)
        .ok();
}

/// Answers the only request of each connection with the server name of the handshake.
fn says_its_name(folder: &Path) -> impl Fn(TcpStream) + Send + Sync + 'static {
    answers(folder, |ssl| {
        let name = ssl.servername(NameType::HOST_NAME);
        format!("for {}.", name.unwrap_or("nobody"))
    })
}

/// Answers the only request of each connection with a text about its handshake.
pub fn answers(
    folder: &Path,
    text: impl Fn(&SslRef) -> String + Send + Sync + 'static,
) -> impl Fn(TcpStream) + Send + Sync + 'static {
    let mut tls = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).expect("TLS");
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.join(name));
    tls.set_certificate_file(certificate, SslFiletype::PEM)
        .expect("a certificate");
    tls.set_private_key_file(key, SslFiletype::PEM)
        .expect("a key");
    let tls = tls.build();
    move |stream| {
        let Ok(mut stream) = tls.accept(stream) else {
            return;
        };
        let text = text(stream.ssl());
        head(&mut BufReader::new(&mut stream));
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length";
        write!(stream, "{head}: {}\r\n\r\n{text}", text.len()).expect("the gateway");
        let _ = stream.shutdown();
    }
}

#[test]
fn the_certificate_has_to_match_the_name_in_the_url() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, port) = (folder.path(), |at: &str| at.replace("127.0.0.1:", ""));
    for (name, good, bad) in [
        ("DNS:localhost", "localhost", "127.0.0.1"),
        ("IP:127.0.0.1", "127.0.0.1", "localhost"),
    ] {
        certify(path, name);
        let port = port(&backend(says_its_name(path)));
        let sites = [("good", good), ("bad", bad)].map(|(site, host)| {
            let roots = believing(&path.join("cert.pem"));
            let names = format!("names = [\"{site}.test\"]");
            format!("[[site]]\n{names}\n{BOTH}\nbackend = \"https://{host}:{port}\"\n{roots}\n")
        });
        let gateway = Gateway::start(Gateway::prepare(), "", &sites.concat());
        let asked = if good == "localhost" { good } else { "nobody" };
        gateway
            .curl("good.test", "/", "")
            .says(" 200")
            .says(&format!("for {asked}."));
        gateway
            .curl("bad.test", "/", "")
            .says(" 502")
            .never_says("for ");
        let daemon = gateway.rig.daemon.as_ref().expect("a daemon");
        assert!(daemon.log().contains("mismatch"), "{}", daemon.log());
    }
}

#[test]
fn a_backend_that_does_no_handshake_is_given_up_after_five_seconds() {
    // Linux completes connections in its queue.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let gateway = in_front_of("https", &address, "backend_timeout = \"1h\"");
    let begun = Instant::now();
    gateway.curl("a.test", "/", "").says(" 502");
    let waited = begun.elapsed();
    assert!((5..60).contains(&waited.as_secs()), "{waited:?}");
    let log = log(&gateway);
    assert!(log.contains("no connection within 5s"), "{log}");
}

#[test]
fn a_backend_with_an_untrusted_certificate_gets_no_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let nginx = Nginx::start(folder.path());
    let stranger = in_front_of_nginx(&nginx, "");
    stranger.curl("a.test", "/hello.txt", "").says(" 502");
    let rig = Gateway::prepare();
    fs::copy(rig.path("ec.pem"), rig.path("roots.pem")).expect("a wrong root");
    let url = format!("https://127.0.0.1:{}", nginx.port());
    let site = format!("[[site]]\n{BOTH}\nbackend = \"{url}\"\nbackend_ca = \"roots.pem\"");
    let gateway = Gateway::start(rig, "", &site);
    let ask = || gateway.curl("a.test", "/hello.txt", "");
    for _ in 0..3 {
        ask().says(" 502").never_says("hello");
    }
    let log = || gateway.rig.daemon.as_ref().expect("a daemon").log();
    let told = log().matches("cert verification failed").count();
    assert_eq!(told, 1, "{}", log());
    assert!(nginx.requests().is_empty(), "{:?}", nginx.requests());
    fs::copy(nginx.certificate(), gateway.rig.path("roots.pem")).expect("the right root");
    until("the right root is believed", PATIENCE, || {
        ask().out.contains("hello, world").then_some(())
    });
}

#[test]
fn roots_that_cannot_be_read_are_named() {
    let mut rig = Gateway::prepare();
    let site = format!("[[site]]\n{BOTH}\nbackend = \"https://[::1]\"\nbackend_ca = \"none.pem\"");
    crate::rig::configure(&mut rig, "", &site);
    rig.write_config();
    let lines = fs::read_to_string(rig.path("hsmux.toml")).expect("the configuration");
    let line = lines.lines().position(|line| line.contains("none.pem"));
    let line = line.expect("its line") + 1;
    let check = rig.hsmux("config check").fails();
    check
        .says(&format!("hsmux.toml:{line}: "))
        .says("none.pem: No such file");
    rig.hsmux("gateway").fails().says("none.pem: No such file");
    fs::write(rig.path("none.pem"), "nothing\n").expect("a file");
    rig.hsmux("gateway")
        .fails()
        .says("none.pem: there is no certificate in it");
}
