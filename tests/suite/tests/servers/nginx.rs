use rustix::process::Signal;

use crate::way::{Login, Way};
use crate::web::{Kind, keeps_serving};

const ENGINE: Kind = Kind {
    workers: 4,
    way: Way::Engine,
    login: Login::Pin,
    by_name: false,
    configuration: |port, keys| configuration(port, keys.map(|uri| format!("engine:pkcs11:{uri}"))),
    command: &["nginx", "-p", ".", "-e", "error.log", "-c", "server.conf"],
    reload: Signal::HUP,
};

const PROVIDER: Kind = Kind {
    way: Way::Provider,
    login: Login::Peer,
    configuration: |port, keys| configuration(port, keys.map(str::to_owned)),
    ..ENGINE
};

/// nginx takes every variable from its workers that `env` does not name.
fn configuration(port: u16, [rsa, ec]: [String; 2]) -> String {
    format!(
        r#"worker_processes 4; user www-data; daemon off; pid nginx.pid; error_log error.log;
env HSMUX_SOCKET; env HSMUX_CONFIG;
events {{}}
http {{
    client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp;
    uwsgi_temp_path temp; scgi_temp_path temp;
    log_format process '$pid';
    access_log access.log process;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_certificate ../ec.pem;
        ssl_certificate_key "{ec}";
        ssl_certificate ../rsa.pem;
        ssl_certificate_key "{rsa}";
        root www;
    }}
}}
"#
    )
}

#[test]
fn keeps_serving_whatever_happens() {
    keeps_serving(&ENGINE);
}

#[test]
fn keeps_serving_with_the_provider() {
    keeps_serving(&PROVIDER);
}
