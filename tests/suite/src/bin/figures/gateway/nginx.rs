//! nginx with two worker processes, for comparison with the gateway.

use std::fmt::Write;
use std::fs;
use std::net::TcpStream;
use std::path::Path;

use hsmux_suite::{Process, Rig, on_a_free_port};

/// A running server, which ends on drop.
pub struct Nginx {
    /// `127.0.0.1:PORT`
    pub address: String,
    process: Process,
}

impl Nginx {
    /// Starts it in a folder `name` of the rig, with `(certificate, key)` in nginx's syntax. For keys of OpenSSL's
    /// engine `module` is the PKCS#11 module to load.
    pub fn start(rig: &Rig, name: &str, keys: &[(&str, String)], module: Option<&Path>) -> Self {
        let folder = rig.path(name);
        fs::create_dir(&folder).expect("a folder");
        if let Some(module) = module {
            let openssl = format!(
                "openssl_conf = init\n[init]\nengines = engines\n[engines]\npkcs11 = pkcs11\n[pkcs11]\ninit = 1\n\
                 MODULE_PATH = {}\n",
                module.display()
            );
            fs::write(folder.join("openssl.cnf"), openssl).expect("write openssl.cnf");
        }
        let (process, port) = on_a_free_port(
            "nginx",
            |port| on_port(port, rig, name, keys, module.is_some()),
            |port| TcpStream::connect(("127.0.0.1", port)).is_ok(),
        );
        Self {
            address: format!("127.0.0.1:{port}"),
            process,
        }
    }

    /// The first of its processes.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

fn on_port(port: u16, rig: &Rig, name: &str, keys: &[(&str, String)], engine: bool) -> Process {
    let folder = rig.path(name);
    fs::write(folder.join("nginx.conf"), configuration(port, keys)).expect("write nginx.conf");
    let mut run = rig
        .family(&["nginx", "-p", ".", "-e", "error.log", "-c", "nginx.conf"])
        .dir(&folder);
    if engine {
        run = run.env("OPENSSL_CONF", folder.join("openssl.cnf"));
    }
    Process::start(name, &folder, run)
}

/// Clients get session tickets, as from the gateway. nginx removes environment variables that `env` does not name
/// from its workers.
fn configuration(port: u16, keys: &[(&str, String)]) -> String {
    let mut pairs = String::new();
    for (certificate, key) in keys {
        write!(
            pairs,
            "ssl_certificate ../{certificate}.pem; ssl_certificate_key \"{key}\"; "
        )
        .expect("a string");
    }
    format!(
        r"worker_processes 2; user root; daemon off; pid nginx.pid; error_log error.log;
env SOFTHSM2_CONF; env HSMUX_CONFIG; env OPENSSL_CONF;
events {{ worker_connections 2048; }}
http {{
    client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp; uwsgi_temp_path temp; scgi_temp_path temp;
    access_log off;
    server {{
        listen 127.0.0.1:{port} ssl backlog=1024 reuseport;
        {pairs}
        ssl_protocols TLSv1.2 TLSv1.3; ssl_ecdh_curve X25519; ssl_session_cache off;
        keepalive_requests 1000000;
        root ../www;
    }}
}}
"
    )
}
