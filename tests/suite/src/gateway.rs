//! A daemon with a gateway on ports that the system chooses, and its clients.

use std::fs;
use std::path::PathBuf;

use crate::{Finished, PATIENCE, Rig, Run, Setup, until};

/// A rig whose daemon has a `[gateway]`.
pub struct Gateway {
    /// The tokens and the daemon.
    pub rig: Rig,
    /// `127.0.0.1:PORT`
    pub address: String,
    /// The same without TLS; empty: no listener.
    pub http: String,
    /// The address of the metrics page: `ADDRESS:PORT`.
    pub metrics: String,
}

/// The request of an `openssl` client.
pub const ASK: &str = "GET /page.txt HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";

/// A folder `www` with a page.
pub const FOLDER: &str = "root = \"www\"";

/// The certificates that [`Gateway::prepare`] creates for its keys.
pub const BOTH: &str = r#"certificates = ["rsa.pem", "ec.pem"]"#;

/// Creates a certificate for a key of the rig, `<name>.pem`.
pub fn certify(rig: &Rig, name: &str, key: &str, days: i32) -> PathBuf {
    let openssl = |line: &str| {
        Run::new("openssl")
            .dir(rig.path("").as_path())
            .args(line)
            .ok()
    };
    let file = rig.keys.file(key);
    let key = file.display();
    openssl(&format!(
        "req -new -key {key} -subj /CN={name} -out {name}.csr"
    ));
    let extensions = format!("subjectAltName=DNS:{name}.test,DNS:a.test,DNS:*.wild.test\n");
    fs::write(rig.path(&format!("{name}.ext")), extensions).expect("write extensions");
    openssl(&format!(
        "x509 -req -in {name}.csr -signkey {key} -days {days} -extfile {name}.ext -out {name}.pem"
    ));
    rig.path(&format!("{name}.pem"))
}

/// Creates a certificate `<key>.pem` for the public key of a key in a running daemon.
/// Another key signs it, since the private key cannot be exported.
pub fn certify_public(rig: &Rig, key: &str) -> PathBuf {
    let openssl = |line: &str| rig.run("openssl").args(line).ok();
    rig.public_key(&format!("object={key}"), &format!("{key}.pub"));
    openssl(&format!(
        "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={key} -keyout {key}-ca.key \
         -out {key}.csr"
    ));
    openssl(&format!(
        "x509 -req -in {key}.csr -signkey {key}-ca.key -force_pubkey {key}.pub -days 30 -out {key}.pem"
    ));
    rig.path(&format!("{key}.pem"))
}

/// A new client of `a.test` on this port, which accepts every certificate and requests the page.
pub fn page(port: u16) -> Run {
    Run::new("curl")
        .args("--silent --show-error --fail --insecure --max-time 120")
        .args(&format!("--connect-to a.test:443:127.0.0.1:{port}"))
        .arg("https://a.test/page.txt")
}

impl Gateway {
    /// Two SoftHSM tokens with an RSA and an EC key, certificates for both, and a page in `www`.
    pub fn prepare() -> Rig {
        let rig = Rig::prepare(Setup::Daemon, 2);
        for key in ["rsa", "ec"] {
            certify(&rig, key, key, 30);
        }
        fs::create_dir(rig.path("www")).expect("a folder");
        fs::write(rig.path("www/page.txt"), "a page\n").expect("a page");
        fs::write(rig.path("secret.txt"), "a secret\n").expect("a secret");
        rig
    }

    /// Starts it with these lines of `[gateway]` and these sites.
    pub fn start(mut rig: Rig, lines: &str, sites: &str) -> Self {
        configure(&mut rig, lines, sites);
        Self::start_by(rig, Rig::start)
    }

    /// Starts it with the caller's function.
    pub fn start_by(mut rig: Rig, start: impl FnOnce(&mut Rig)) -> Self {
        // The log of an earlier process comes first.
        let before = fs::read(rig.path("daemon.log")).map_or(0, |log| log.len());
        start(&mut rig);
        let log = || rig.daemon.as_ref().expect("a daemon").log();
        let (address, metrics, http) = until("the gateway serves", PATIENCE, || {
            let log = log();
            // A broker logs the same words in a line of its own.
            let (_, said) = log.get(before..)?.split_once("the gateway serves")?;
            let (_, said) = said.split_once("addresses=[")?;
            let (address, rest) = said.split_once(']')?;
            let (metrics, _) = rest.split_once("metrics=Some(")?.1.split_once(')')?;
            let (http, _) = rest.split_once("http=[")?.1.split_once(']')?;
            Some((address.to_owned(), metrics.to_owned(), http.to_owned()))
        });
        Self {
            rig,
            address,
            http,
            metrics,
        }
    }

    /// One site with both certificates and a folder.
    pub fn with_folder() -> Self {
        Self::start(Self::prepare(), "", &format!("[[site]]\n{BOTH}\n{FOLDER}"))
    }

    /// Its port for TLS.
    pub fn port(&self) -> u16 {
        let port = self.address.rsplit_once(':').expect("a port").1;
        port.parse().expect("a number")
    }

    /// The output of curl for `https://HOST/PATH`, with additional options; it accepts every certificate.
    pub fn curl(&self, host: &str, path: &str, more: &str) -> Finished {
        let port = self.port();
        Run::new("curl")
            .args("--silent --show-error --insecure --path-as-is --include --max-time 60")
            .args(&format!("--connect-to {host}:443:127.0.0.1:{port}"))
            .args(more)
            .arg(format!("https://{host}{path}"))
            .finish()
    }

    /// The output of `openssl s_client`, which sends `input` after the handshake.
    pub fn s_client(&self, more: &str, input: &str) -> String {
        let run = Run::new("openssl")
            .dir(self.rig.path("").as_path())
            .args(&format!("s_client -connect {} -ign_eof", self.address))
            .args(more)
            .input(input);
        run.finish().all()
    }

    /// The gateway's process.
    pub fn process(&self) -> u32 {
        let status = self.rig.status();
        let services = status["services"].as_array().expect("services");
        let gateway = services.iter().find(|service| service["name"] == "gateway");
        let pid = gateway.expect("the gateway")["pid"].as_u64();
        u32::try_from(pid.expect("a process")).expect("its number")
    }

    /// The sum of all metrics whose lines begin with this text.
    pub fn metric(&self, begin: &str) -> u64 {
        let page = Run::new("curl")
            .args(&format!(
                "--silent --max-time 60 http://{}/metrics",
                self.metrics
            ))
            .ok();
        let lines = page.out.lines().filter(|line| line.starts_with(begin));
        lines
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
            .sum()
    }

    /// The argument for a load balancer's configuration: `HOST:PORT/HEALTH`.
    pub fn host(&self) -> String {
        let health = self.metrics.rsplit_once(':').expect("a port").1;
        format!("{}/{health}", self.address)
    }

    /// The answer of `/health`, with its status. Empty if the gateway is not there.
    pub fn health(&self) -> String {
        let url = format!("http://{}/health", self.metrics);
        Run::new("curl")
            .args("--silent --include --max-time 60")
            .arg(url)
            .finish()
            .out
    }
}

/// Adds the gateway's sections to the configuration. By default it has no `leave_time`, since no balancer is there.
pub fn configure(rig: &mut Rig, lines: &str, sites: &str) {
    let leaves = if lines.contains("leave_time") {
        ""
    } else {
        "leave_time = \"0s\"\n"
    };
    rig.config.module = format!(
        "\n[gateway]\nlisten = [\"127.0.0.1:0\"]\nmetrics = \"127.0.0.1:0\"\n{leaves}{lines}\n{sites}\n"
    );
}
