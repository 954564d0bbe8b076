use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use crate::{Process, Run, on_a_free_port};

/// A web server over TLS with a small site: nginx with its key in a file. It ends on drop.
/// It has a self-signed certificate for 127.0.0.1 and `www.example.test`.
pub struct Nginx {
    /// The server's process.
    pub process: Process,
    port: u16,
    folder: PathBuf,
}

/// A page with three resources on the same site, each referenced at least twice, and one elsewhere.
const PAGE: &str = r#"<!doctype html><html><head><link rel="stylesheet" href="/style.css">
<script src="/page.js"></script></head><body><img src="/logo.png"><img src="/logo.png"></body></html>"#;

const FILES: [(&str, &str); 5] = [
    ("hello.txt", "hello, world\n"),
    ("index.html", PAGE),
    ("style.css", "body { color: black }\n"),
    ("page.js", "var page = 1;\n"),
    ("logo.png", "not really\n"),
];

/// The socket of the back end for `/behind/`.
const BEHIND: &str = "behind.sock";

impl Nginx {
    /// Starts it in a separate folder below `folder`.
    pub fn start(folder: &Path) -> Self {
        let folder = folder.join("nginx");
        fs::create_dir_all(folder.join("site")).expect("a folder for the site");
        for (name, text) in FILES {
            fs::write(folder.join("site").join(name), text).expect("write a page");
        }
        Run::new("openssl")
            .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2")
            .args("-subj /CN=server -addext subjectAltName=IP:127.0.0.1,DNS:www.example.test")
            .args("-addext basicConstraints=critical,CA:FALSE -keyout key.pem -out cert.pem")
            .dir(&folder)
            .ok();
        let (process, port) = on_a_free_port(
            "nginx",
            |port| Self::on_port(port, &folder),
            |port| TcpStream::connect(("127.0.0.1", port)).is_ok(),
        );
        Self {
            process,
            port,
            folder,
        }
    }

    fn on_port(port: u16, folder: &Path) -> Process {
        let text = configuration(port, &folder.join(BEHIND));
        fs::write(folder.join("nginx.conf"), text).expect("write nginx.conf");
        let run = Run::new("nginx")
            .arg("-p")
            .arg(folder)
            .args("-e error.log -c nginx.conf");
        Process::start("nginx", folder, run)
    }

    /// The URL of a page.
    pub fn url(&self, page: &str) -> String {
        format!("https://127.0.0.1:{}/{page}", self.port)
    }

    /// Answers all paths below `/behind/` from now on, with the function's complete answer, one connection each.
    pub fn answer(&self, answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) {
        let listener = UnixListener::bind(self.folder.join(BEHIND)).expect("a socket");
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let answer = Arc::clone(&answer);
                thread::spawn(move || {
                    let head: Vec<_> = BufReader::new(&stream)
                        .lines()
                        .map_while(Result::ok)
                        .take_while(|line| !line.is_empty())
                        .collect();
                    let path = head.first().and_then(|line| line.split(' ').nth(1));
                    stream.write_all(&answer(path.unwrap_or_default()))
                });
            }
        });
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its certificate, which is self-signed.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("cert.pem")
    }

    /// A line for each request: status, version, group, `r` for a resumed session or `.`, and the path.
    pub fn requests(&self) -> Vec<String> {
        let log = fs::read_to_string(self.folder.join("access.log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}

fn configuration(port: u16, behind: &Path) -> String {
    let behind = behind.display();
    format!(
        r"daemon off; master_process off; user root; pid nginx.pid; error_log error.log;
events {{ worker_connections 2048; }}
http {{
    client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp;
    uwsgi_temp_path temp; scgi_temp_path temp;
    log_format tls '$status $ssl_protocol $ssl_curve $ssl_session_reused $request_uri';
    access_log access.log tls;
    types {{ text/html html; text/css css; text/plain txt; application/javascript js; image/png png; }}
    server {{
        listen 127.0.0.1:{port} ssl backlog=1024;
        ssl_certificate cert.pem; ssl_certificate_key key.pem; ssl_protocols TLSv1.2 TLSv1.3;
        ssl_session_cache shared:tls:1m;
        root site;
        location = /busy {{ return 503; }}
        location = /moved {{ return 301 /hello.txt; }}
        location /behind/ {{ proxy_pass http://unix:{behind}; proxy_set_header Connection close; }}
    }}
}}
"
    )
}
