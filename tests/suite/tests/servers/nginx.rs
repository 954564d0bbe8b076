use rustix::process::Signal;

use crate::web::{Kind, Login, keeps_serving};

const NGINX: Kind = Kind {
    workers: 4,
    login: Login::Pin,
    configuration,
    command: &["nginx", "-p", ".", "-e", "error.log", "-c", "server.conf"],
    reload: Signal::HUP,
};

/// nginx takes every variable from its workers that `env` does not name.
fn configuration(port: u16, [rsa, ec]: [&str; 2]) -> String {
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
        ssl_certificate_key "engine:pkcs11:{ec}";
        ssl_certificate ../rsa.pem;
        ssl_certificate_key "engine:pkcs11:{rsa}";
        root www;
    }}
}}
"#
    )
}

#[test]
fn keeps_serving_whatever_happens() {
    keeps_serving(&NGINX);
}
