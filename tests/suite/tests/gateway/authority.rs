//! Pebble, an ACME server for tests, and a DNS server by which all names mean this machine.

use std::fs;
use std::net::UdpSocket;
use std::thread;

use hsmux_suite::{PATIENCE, Process, Rig, Run, until};

/// The DNS server, and an address that no other test uses.
pub struct Names {
    port: u16,
    /// On loopback.
    pub address: String,
}

/// A running ACME server.
pub struct Authority {
    /// URL of its ACME directory.
    directory: String,
    _pebble: Process,
}

impl Names {
    /// Answers DNS queries (RFC 1035) until the test ends: every name has the address 127.0.0.1.
    pub fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let port = socket.local_addr().expect("an address").port();
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut query) {
                let _ = socket.send_to(&answer(&query[..length]), from);
            }
        });
        // The address is derived from the port, which is unique while the socket is open.
        let [high, low] = port.to_be_bytes();
        let address = format!("127.{high}.{low}.1");
        Self { port, address }
    }
}

/// The response to a query, with an address if type A was asked for.
fn answer(query: &[u8]) -> Vec<u8> {
    const TYPE_A: [u8; 2] = [0, 1];
    let name = query[12..].iter().position(|byte| *byte == 0);
    let question = &query[12..12 + name.expect("a name") + 5];
    let is_a = question[question.len() - 4..].starts_with(&TYPE_A);
    let mut answer = query[..2].to_vec();
    // An authoritative response with one question, and one answer or none.
    answer.extend([0x84, 0, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
    answer.extend(question);
    if is_a {
        // The name above, IN, no time to live, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
    }
    answer
}

impl Authority {
    /// Starts it. It fetches challenges from the port of `http` at every name.
    pub fn start(rig: &Rig, names: &Names, http: &str) -> Self {
        let at = &names.address;
        let port = http.rsplit_once(':').expect("a port").1;
        rig.run("openssl")
            .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30")
            .args("-subj /CN=pebble -keyout pebble.key -out pebble.pem -addext")
            .arg(format!("subjectAltName=IP:{at}"))
            .ok();
        let config = format!(
            r#"{{"pebble": {{"listenAddress": "{at}:14000", "certificate": "pebble.pem",
            "privateKey": "pebble.key", "httpPort": {port}, "tlsPort": 1}}}}"#
        );
        fs::write(rig.path("pebble.json"), config).expect("a configuration");
        let pebble = rig
            .run("pebble")
            .args(&format!(
                "-config pebble.json -dnsserver 127.0.0.1:{}",
                names.port
            ))
            // Without the pauses and errors by which it tests its clients.
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_WFE_NONCEREJECT", "0")
            .env("PEBBLE_AUTHZREUSE", "0");
        let mut pebble = Process::start("pebble", &rig.path(""), pebble);
        let directory = format!("https://{at}:14000/dir");
        until("the authority answers", PATIENCE, || {
            assert!(pebble.running(), "{}", pebble.log());
            let ask = Run::new("curl").args("--silent --insecure --max-time 60");
            (ask.arg(&directory).finish().code == Some(0)).then_some(())
        });
        Self {
            directory,
            _pebble: pebble,
        }
    }

    /// `certbot certonly` with a request for a certificate, which is written to a new file.
    pub fn certbot(&self, rig: &Rig, how: &str, csr: &str, out: &str) -> Run {
        rig.run("certbot")
            .env("REQUESTS_CA_BUNDLE", rig.path("pebble.pem"))
            .args("certonly --config-dir certbot --work-dir certbot --logs-dir certbot")
            .args("--non-interactive --agree-tos --email admin@a.test")
            .args(&format!("--server {} --csr {csr} {how}", self.directory))
            .args(&format!(
                "--cert-path {out}.cert --chain-path {out}.chain --fullchain-path {out}"
            ))
    }

    /// `lego` with a request for a certificate.
    pub fn lego(&self, rig: &Rig, how: &str, csr: &str, what: &str) -> Run {
        rig.run("lego")
            .env("LEGO_CA_CERTIFICATES", rig.path("pebble.pem"))
            .args(&format!(
                "--path lego --server {} --csr {csr}",
                self.directory
            ))
            .args("--accept-tos --email admin@a.test --http")
            .args(&format!("{how} {what}"))
    }
}
