//! nginx and haproxy behind the gateway, with the configurations of docs/gateway.md.

use std::fs;
use std::path::Path;

use hsmux_suite::{PATIENCE, until};

use crate::backends::{backend, mirror};
use crate::doc_blocks::block;
use crate::proxy_headers::Server;
use crate::rig::Gateway;

const SECTION: &str = "In production: nginx or haproxy behind the gateway";

/// The host of the page.
const HOST: &str = "www.example.com";

/// A block of the page, in which each first text is replaced by the second one.
fn adapted(language: &str, replacements: &[(&str, &str)]) -> String {
    let mut text = block(SECTION, language);
    for (from, to) in replacements {
        assert!(text.contains(from), "{from} is not in {text}");
        text = text.replace(from, to);
    }
    text
}

/// The page's configuration of a server: it listens on a port, and its application is here.
fn server(language: &str, application: &str, port: u16) -> String {
    let listens = format!("127.0.0.1:{port}");
    let replacements = [
        ("127.0.0.1:8080", &*listens),
        ("127.0.0.1:3000", application),
    ];
    adapted(language, &replacements)
}

/// A gateway with the page's site, in front of a server.
fn in_front_of(server: &Server) -> Gateway {
    let server = format!("127.0.0.1:{}", server.port);
    let replacements = [
        ("web.pem", "ec.pem"),
        ("object=web", "object=ec"),
        ("127.0.0.1:8080", &*server),
    ];
    Gateway::start(Gateway::prepare(), "", &adapted("toml", &replacements))
}

/// The application is told of the client, and not by the client.
fn tells_the_application(gateway: &Gateway) {
    let options = "--http2 --interface host!127.0.0.2 --header X-Forwarded-For:6.6.6.6 \
                   --header X-Forwarded-Proto:http";
    let said = gateway.curl(HOST, "/app/page?query=1", options);
    // Clients that prefer HTTP/2 get HTTP/1.1.
    assert!(said.out.starts_with("HTTP/1.1 200"), "{said}");
    let headers = said.out.to_ascii_lowercase();
    for line in [
        "strict-transport-security: max-age=31536000",
        &format!("host: {HOST}"),
        "x-forwarded-for: 127.0.0.2",
        "x-forwarded-proto: https",
    ] {
        let count = headers.lines().filter(|said| *said == line).count();
        assert_eq!(count, 1, "{line}: {said}");
    }
    said.says("get /app/page?query=1 ").never_says("6.6.6.6");
}

/// Its log has the client's address as well.
fn logs_the_client(folder: &Path) {
    until("the client is in nginx's log", PATIENCE, || {
        let log = fs::read_to_string(folder.join("access.log")).expect("a log");
        let line = |line: &str| line.starts_with("127.0.0.2 ") && line.contains("/app/page");
        log.lines().any(line).then_some(())
    });
}

#[test]
fn nginx_works_as_the_page_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let application = backend(mirror);
    let files = folder.path().join("files");
    fs::create_dir(&files).expect("a folder of files");
    fs::write(files.join("page.txt"), "a page\n").expect("a page");
    let nginx = Server::nginx(folder.path(), |port| {
        let text = server("nginx", &application, port);
        assert!(text.contains("root /srv/www;"), "{text}");
        text.replace("/srv/www", &files.display().to_string())
    });
    let gateway = in_front_of(&nginx);
    tells_the_application(&gateway);
    logs_the_client(folder.path());
    let file = gateway.curl(HOST, "/page.txt", "");
    file.says(" 200").says("a page");
    // nginx adds the slash of a location.
    let redirected = gateway.curl(HOST, "/app", "");
    redirected.says(" 301").says("Location: /app/\r");
}

#[test]
fn haproxy_works_as_the_page_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let application = backend(mirror);
    let haproxy = Server::haproxy(folder.path(), |port| server("haproxy", &application, port));
    tells_the_application(&in_front_of(&haproxy));
}
