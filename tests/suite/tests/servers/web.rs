//! A web server with several worker processes, whose keys are in the tokens of one daemon.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use hsmux_suite::{BackgroundLoad, PATIENCE, Process, Rig, Run, Setup, on_a_free_port, until};
use rustix::process::{Pid, Signal, kill_process};

use crate::way::{Login, Way};

/// What servers of one kind differ in.
pub struct Kind {
    /// Worker processes.
    pub workers: usize,
    /// What its OpenSSL loads.
    pub way: Way,
    /// How it may use the keys.
    pub login: Login,
    /// The server chooses the certificate by the client's server name (SNI). Otherwise it has both for any name.
    pub by_name: bool,
    /// The program's file in the rig's folder `server`, with the port and what there is for both keys.
    pub configuration: fn(port: u16, keys: [&str; 2]) -> String,
    /// What starts it in the foreground, in that folder.
    pub command: &'static [&'static str],
    /// The signal that reloads its configuration, as `nginx -s reload` and `apachectl graceful` send it.
    pub reload: Signal,
}

/// A server that runs.
pub struct Web {
    /// Two tokens with the same keys, and the daemon.
    pub rig: Rig,
    kind: &'static Kind,
    port: u16,
    process: Process,
}

/// For users who are not the daemon's.
const LISTENER: &str = r#"
[[listener]]
socket = "web.sock"
group = "www-data"
read_only = true
"#;

impl Web {
    /// Started on a port that was free.
    pub fn start(kind: &'static Kind) -> Self {
        let rig = with_certificates();
        let mut rig = open_to_others(rig, kind.login);
        rig.start();
        fs::create_dir_all(rig.path("server/www")).expect("a folder");
        fs::write(rig.path("server/www/hello.txt"), "hello, world\n").expect("a page");
        kind.way.write_configuration(&rig);
        let (process, port) = on_a_free_port(
            "the server",
            |port| on_port(port, &rig, kind),
            |port| curl(&rig, port).finish().code == Some(0),
        );
        Self {
            rig,
            kind,
            port,
            process,
        }
    }

    /// TLS 1.2 and 1.3 with both keys: the client's signature algorithms choose the key.
    pub fn serves_both_keys_and_versions(&self) {
        let algorithms = [("rsa", "rsa_pss_rsae_sha256"), ("ec", "ECDSA+SHA256")];
        for version in ["tls1_2", "tls1_3"] {
            for (key, algorithm) in algorithms {
                let by_name = self.kind.by_name;
                let name = by_name.then(|| format!("-servername {key}.test"));
                let name = name.unwrap_or_default();
                self.rig
                    .run("openssl")
                    .args(&format!(
                        "s_client -connect 127.0.0.1:{} -ign_eof",
                        self.port
                    ))
                    .args(&format!("-{version} -sigalgs {algorithm} {name}"))
                    .args(&format!("-CAfile {key}.pem -verify_return_error"))
                    .input("GET /hello.txt HTTP/1.0\r\n\r\n")
                    .ok()
                    .says("Verification: OK")
                    .says("hello, world");
            }
            let curl_version = version.replace('_', ".").replace("tls", "");
            curl(&self.rig, self.port)
                .args(&format!("--tlsv{curl_version} --tls-max {curl_version}"))
                .ok()
                .says("hello, world");
        }
    }

    /// Four clients that come anew each time.
    pub fn load(&self) -> BackgroundLoad {
        let (port, roots) = (self.port, self.rig.path("both.pem"));
        BackgroundLoad::start(4, move || {
            hello(port).arg("--cacert").arg(&roots).arg("--fail")
        })
    }

    /// What one client gets.
    pub fn ask(&self) -> Run {
        curl(&self.rig, self.port)
    }

    /// The worker processes that have answered since the request of this number.
    pub fn answered_since(&self, request: usize) -> BTreeSet<String> {
        self.requests().into_iter().skip(request).collect()
    }

    /// The process that has answered, for each request.
    pub fn requests(&self) -> Vec<String> {
        let log = fs::read_to_string(self.rig.path("server/access.log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Waits until so many worker processes as there are, none of `but`, have answered from now on.
    pub fn every_worker_answers(&self, but: &BTreeSet<String>) {
        let from = self.requests().len();
        until("every worker process has answered", PATIENCE, || {
            let answered = self.answered_since(from);
            (answered.difference(but).count() >= self.kind.workers).then_some(())
        });
    }

    /// Has it read its configuration again.
    pub fn reload(&self) {
        self.process.signal_first(self.kind.reload);
    }

    /// Every process of the server has hsmux's module and none the vendor's.
    pub fn holds_no_token(&self) {
        let workers = children(self.process.children()[0]);
        assert!(workers.len() >= self.kind.workers, "{workers:?}");
        for process in workers {
            // One that is just going has none at all.
            let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
            assert!(!maps.contains("libsofthsm2"), "{process}:\n{maps}");
            let ours = maps.contains("libhsmux_pkcs11");
            assert!(ours || maps.is_empty(), "{process}:\n{maps}");
        }
    }
}

fn children(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let line = fs::read_to_string(path).expect("the children of a process");
    let pids = line.split_whitespace();
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

/// A rig with a certificate for each of its keys, `rsa.pem` and `ec.pem`, and `both.pem`.
pub fn with_certificates() -> Rig {
    let rig = Rig::prepare(Setup::Daemon, 2);
    let pem = |key: &str| {
        let certificate = rig.keys.certificate(key);
        let run = rig.run("openssl").args("x509 -inform DER -in");
        let text = run.arg(certificate).ok().out;
        fs::write(rig.path(&format!("{key}.pem")), &text).expect("write a certificate");
        text
    };
    let both = pem("rsa") + &pem("ec");
    fs::write(rig.path("both.pem"), both).expect("write the certificates");
    rig
}

/// Lets www-data through to a listener for it.
pub fn open_to_others(mut rig: Rig, login: Login) -> Rig {
    let by = match login {
        Login::Pin => "pin = { file = \"pool.pin\" }\n",
        Login::Peer => "login = \"peer\"\nallow_users = [\"www-data\"]\n",
    };
    rig.config.module.push_str(LISTENER);
    rig.config.module.push_str(by);
    let open = fs::Permissions::from_mode(0o711);
    fs::set_permissions(rig.path(""), open).expect("open the rig's folder");
    rig
}

fn on_port(port: u16, rig: &Rig, kind: &'static Kind) -> Process {
    let [rsa, ec] = ["rsa", "ec"].map(|key| kind.way.key(rig, key, kind.login));
    let text = (kind.configuration)(port, [&rsa, &ec]);
    fs::write(rig.path("server/server.conf"), text).expect("write the configuration");
    let run = rig
        .family(kind.command)
        .dir(&rig.path("server"))
        .env("HSMUX_CONFIG", "")
        .env("HSMUX_SOCKET", rig.path("web.sock"))
        .env("OPENSSL_CONF", rig.path("openssl.cnf"));
    Process::start("server", &rig.path(""), run)
}

fn curl(rig: &Rig, port: u16) -> Run {
    hello(port).arg("--cacert").arg(rig.path("both.pem"))
}

/// A client that takes the EC key's certificate, as servers prefer it.
fn hello(port: u16) -> Run {
    Run::new("curl")
        .args("--silent --show-error --max-time 120")
        .args(&format!("--connect-to ec.test:443:127.0.0.1:{port}"))
        .arg("https://ec.test/hello.txt")
}

/// What a server with several worker processes has to outlive.
pub fn keeps_serving(kind: &'static Kind) {
    let mut web = Web::start(kind);
    web.serves_both_keys_and_versions();
    let pins = |web: &Web| web.rig.hsmux("pin list --json").ok().out;
    let (logins, workers) = (pins(&web), web.rig.workers());

    let load = web.load();
    web.every_worker_answers(&BTreeSet::new());
    let old = web.answered_since(0);
    web.reload();
    web.every_worker_answers(&old);
    web.holds_no_token();
    assert_eq!(logins, pins(&web), "a login besides the daemon's");
    assert_eq!(workers, web.rig.workers(), "one process for each token");

    let worker = Pid::from_raw(workers[0].cast_signed()).expect("a process");
    kill_process(worker, Signal::KILL).expect("a worker to kill");
    load.goes_on(20);
    web.rig.wait_for_members(2);
    load.goes_on(20);
    load.none_failed();

    web.rig.kill_to_the_last();
    web.ask().fails();
    web.rig.start();
    let load = web.load();
    web.every_worker_answers(&BTreeSet::new());
    load.none_failed();
    web.serves_both_keys_and_versions();
}
