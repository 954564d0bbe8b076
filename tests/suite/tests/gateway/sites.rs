//! Names, folders, client certificates, and reloads of sites.

use std::fs;
use std::io::{BufReader, Write};
use std::net::TcpStream;

use boring::ssl::SslStream;
use hsmux_suite::{PATIENCE, until};

use crate::backends::{backend, mirror, request};
use crate::balancer::Client;
use crate::hosts::connect;
use crate::rig::{BOTH, FOLDER, Gateway, certify, configure};

/// Two sites, without one for other names.
const TWO: &str = r#"
[[site]]
names = ["a.test"]
certificates = ["rsa.pem", "ec.pem"]
root = "www"

[[site]]
names = ["b.test", "*.wild.test"]
certificates = ["b.pem"]
root = "other"
"#;

fn two_sites() -> Gateway {
    let rig = Gateway::prepare();
    certify(&rig, "b", "rsa", 30);
    fs::create_dir(rig.path("other")).expect("a folder");
    fs::write(rig.path("other/page.txt"), "another page\n").expect("a page");
    Gateway::start(rig, "", TWO)
}

#[test]
fn each_name_has_its_site_and_unknown_names_get_an_alert() {
    let gateway = two_sites();
    gateway.curl("a.test", "/page.txt", "").says("a page");
    for name in ["b.test", "B.Test", "any.wild.test"] {
        gateway.curl(name, "/page.txt", "").says("another page");
    }
    for options in [
        "-servername c.test",
        "-servername a.b.wild.test",
        "-noservername",
    ] {
        let said = gateway.s_client(options, "");
        assert!(said.contains("unrecognized name"), "{options}: {said}");
    }
    assert_eq!(
        gateway.metric("hsmux_gateway_refused_total{reason=\"tls\"}"),
        3
    );
}

#[test]
fn a_connection_is_for_its_own_site() {
    let gateway = two_sites();
    let misdirected = gateway.curl("a.test", "/page.txt", "--header Host:b.test");
    misdirected.says(" 421").never_says("another page");
}

#[test]
fn a_folder_shows_its_files_and_no_others() {
    let gateway = Gateway::with_folder();
    for version in ["--http1.1", "--http2"] {
        let page = gateway.curl("a.test", "/page.txt", version);
        page.says(" 200")
            .says("a page")
            .says("strict-transport-security: max-age=31536000");
        for path in [
            "/../secret.txt",
            "/%2e%2e/secret.txt",
            "/..%2fsecret.txt",
            "//secret.txt",
        ] {
            gateway
                .curl("a.test", path, version)
                .says(" 404")
                .never_says("a secret");
        }
    }
}

#[test]
fn a_folder_hides_names_that_begin_with_a_dot() {
    let gateway = Gateway::with_folder();
    for file in [
        ".env",
        ".git/config",
        "more/.secret",
        ".well-known/.secret",
        ".well-known/security.txt",
        ".well-known/acme-challenge/token",
    ] {
        let file = gateway.rig.path(&format!("www/{file}"));
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, "a secret\n").expect("a file");
    }
    for version in ["--http1.1", "--http2"] {
        for path in [
            "/.env",
            "/%2eenv",
            "/.git/config",
            "//.git/config",
            "/more/../.git/config",
            "/%2Egit%2fconfig",
            "/more/.secret",
            "/more%2f%2esecret",
            "/.well-known/.secret",
            "/.well-known%2f.secret",
        ] {
            let answer = gateway.curl("a.test", path, version);
            answer.says(" 404").never_says("a secret");
        }
        for path in [
            "/.well-known/security.txt",
            "/%2ewell-known/acme-challenge/token",
        ] {
            let answer = gateway.curl("a.test", path, version);
            answer.says(" 200").says("a secret");
        }
    }
}

#[test]
fn an_invalid_path_gives_404() {
    let gateway = Gateway::with_folder();
    std::os::unix::fs::symlink("circle", gateway.rig.path("www/circle")).expect("a link");
    let (name, path) = ("a".repeat(256), "a/".repeat(3000));
    for path in [&name, &path, "a%00b", "circle", "page.txt/more"] {
        let answer = gateway.curl("a.test", &format!("/{path}"), "");
        answer.says(" 404");
    }
}

/// A certificate that a client presents has to be valid, even if none is required.
#[test]
fn client_certificates_are_required_or_optional() {
    let optional = "client_certificate = \"optional\"";
    // The default is "required".
    for (asked, needs_none) in [("", false), (optional, true)] {
        let rig = Gateway::prepare();
        let [client, stranger] = [("client", "ec"), ("stranger", "rsa")].map(|(name, key)| {
            certify(&rig, name, key, 30);
            let (own, key) = (rig.path(&format!("{name}.pem")), rig.keys.file(key));
            format!("--cert {} --key {}", own.display(), key.display())
        });
        let site = format!("[[site]]\n{BOTH}\nclient_ca = \"client.pem\"\n{asked}\n{FOLDER}");
        let gateway = Gateway::start(rig, "", &site);
        for version in ["--tlsv1.3", "--tls-max 1.2"] {
            for (shown, good) in [(&*client, true), ("", needs_none), (&*stranger, false)] {
                let options = format!("{version} {shown}");
                let answer = gateway.curl("a.test", "/page.txt", &options);
                assert_eq!(answer.out.contains("a page"), good, "{asked} {answer}");
            }
        }
    }
}

#[test]
fn a_reload_brings_new_sites() {
    let mut gateway = two_sites();
    let more = format!("{TWO}\n[[site]]\nnames = [\"c.test\"]\n{BOTH}\n{FOLDER}");
    let reload = |gateway: &mut Gateway, lines: &str| {
        configure(&mut gateway.rig, lines, &more);
        gateway.rig.write_config();
        gateway.rig.hsmux("reload").ok()
    };
    reload(&mut gateway, "").says("[[site]] changed");
    until("the new site is served", PATIENCE, || {
        gateway
            .curl("c.test", "/page.txt", "")
            .out
            .contains("a page")
            .then_some(())
    });
    reload(&mut gateway, "").says("nothing has changed");
    for _ in 0..2 {
        let said = reload(&mut gateway, "tickets = false");
        said.says("[gateway] changed: hsmux restart gateway applies it");
    }
}

/// A missing file holds up only its own site.
#[test]
fn a_reload_applies_sites_whose_files_exist() {
    let mut gateway = two_sites();
    certify(&gateway.rig, "c", "ec", 30);
    certify(&gateway.rig, "f", "ec", 30);
    let site = |name: &str, certificate: &str, more: &str| {
        format!(
            "[[site]]\nnames = [\"{name}\"]\ncertificates = [\"{certificate}.pem\"]\n{more}\n{FOLDER}"
        )
    };
    let write = |gateway: &mut Gateway, sites: &[String]| {
        configure(&mut gateway.rig, "", &sites.join("\n"));
        gateway.rig.write_config();
    };
    let page = |gateway: &Gateway, name: &str| gateway.curl(name, "/page.txt", "").out;
    // The first is changed and lacks its certificate. The second is changed. The third is new and lacks its
    // certificate. The last is new.
    let sites = [
        site("a.test", "none", "hsts = 5"),
        site("b.test", "b", "hsts = 6"),
        site("d.test", "gone", ""),
        site("e.test", "c", "hsts = 7"),
    ];
    write(&mut gateway, &sites);
    let refused = fs::read_to_string(gateway.rig.path("hsmux.toml")).unwrap();
    for changed in [true, false] {
        let reload = gateway.rig.hsmux("reload").fails();
        reload
            .says("none.pem: No such file")
            .says("gone.pem: No such file");
        assert_eq!(
            reload.all().contains("[[site]] changed"),
            changed,
            "{reload}"
        );
        gateway
            .rig
            .hsmux("status --json")
            .ok()
            .says("none.pem: No such file");
    }
    for (name, age) in [("b.test", 6), ("e.test", 7)] {
        until("the good sites are served", PATIENCE, || {
            let told = format!("max-age={age}\r\n");
            page(&gateway, name).contains(&told).then_some(())
        });
    }
    let before = page(&gateway, "a.test");
    assert!(before.contains("a page"), "{before}");
    assert!(!before.contains("max-age=5\r\n"), "{before}");
    let metric =
        gateway.metric("hsmux_gateway_certificate_expires_seconds{key=\"rsa\",site=\"a.test\"}");
    assert!(metric > 0, "the old certificate is not in the metrics");

    // The same exit code as for a file that is refused.
    let missing = gateway.rig.hsmux("reload").fails().code;
    fs::write(
        gateway.rig.path("hsmux.toml"),
        refused.clone() + "\nnonsense = 1\n",
    )
    .unwrap();
    assert_eq!(gateway.rig.hsmux("reload").fails().code, missing);
    // With an error elsewhere nothing is reloaded.
    let pin = refused.replace("\"hsm1.pin\"", "\"hsm9.pin\"");
    let pin = pin.replace("hsts = 6", "hsts = 8");
    fs::write(gateway.rig.path("hsmux.toml"), pin).unwrap();
    let reload = gateway.rig.hsmux("reload").fails();
    reload
        .says("hsm9.pin")
        .says("none.pem")
        .never_says("[[site]] changed");

    // A site is served as soon as its file exists.
    fs::write(gateway.rig.path("hsmux.toml"), &refused).unwrap();
    for (from, to) in [("f.pem", "none.pem"), ("c.pem", "gone.pem")] {
        fs::copy(gateway.rig.path(from), gateway.rig.path(to)).expect("a certificate");
    }
    until("the site is served anew", PATIENCE, || {
        page(&gateway, "a.test")
            .contains("max-age=5\r\n")
            .then_some(())
    });
    assert!(page(&gateway, "b.test").contains("max-age=6\r\n"));
    gateway.rig.hsmux("reload").ok().says("nothing has changed");
    gateway
        .rig
        .hsmux("status --json")
        .ok()
        .never_says("none.pem");
}

#[test]
fn a_reload_leaves_open_connections_as_they_are() {
    let rig = Gateway::prepare();
    certify(&rig, "b", "rsa", 30);
    certify(&rig, "next", "ec", 30);
    let other = format!("[[site]]\nnames = [\"b.test\"]\ncertificates = [\"b.pem\"]\n{FOLDER}");
    let mut gateway = Gateway::start(rig, "", &format!("[[site]]\n{BOTH}\n{FOLDER}\n{other}"));
    let port = gateway.address.rsplit_once(':').expect("a port").1;
    let mut client = Client::connect(port.parse().expect("a port"));
    client.ask();
    let settings = "names = [\"next.test\", \"*\"]\ncertificates = [\"next.pem\"]\nhsts = 5";
    let changed = format!("[[site]]\n{settings}\n{FOLDER}\n{other}");
    configure(&mut gateway.rig, "", &changed);
    gateway.rig.reload();
    until("the new settings are served", PATIENCE, || {
        let page = gateway.curl("a.test", "/page.txt", "");
        page.out.contains("max-age=5\r\n").then_some(())
    });
    client.ask();
    let misdirected = client.ask_for("b.test");
    assert_eq!(misdirected, "this connection is for another site\n");
    client.ask();
}

/// Whether the back end answers one more request on an open connection.
pub fn is_answered(stream: &mut BufReader<SslStream<TcpStream>>) -> bool {
    let ask = b"GET /private HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let sent = stream.get_mut().write_all(ask);
    sent.is_ok() && request(stream).contains("get /private ")
}

#[test]
fn a_reload_that_requires_client_certificates_counts_for_open_connections() {
    let rig = Gateway::prepare();
    certify(&rig, "client", "ec", 30);
    let site = format!("[[site]]\n{BOTH}\nbackend = \"http://{}\"", backend(mirror));
    let mut gateway = Gateway::start(rig, "", &site);
    let mut stream = BufReader::new(connect(&gateway, "a.test", "http/1.1"));
    for _ in 0..2 {
        assert!(is_answered(&mut stream));
    }
    let guarded = format!("{site}\nclient_ca = \"client.pem\"");
    configure(&mut gateway.rig, "", &guarded);
    gateway.rig.reload();
    until("new connections need a certificate", PATIENCE, || {
        let said = gateway.curl("a.test", "/private", "");
        (!said.out.contains("get /private ")).then_some(())
    });
    until("the open one is answered no more", PATIENCE, || {
        (!is_answered(&mut stream)).then_some(())
    });
}

#[test]
fn a_failed_reload_keeps_the_metrics_of_certificates() {
    let gateway = two_sites();
    let expire = || {
        let certificates = [("rsa", "a.test"), ("ec", "a.test"), ("rsa", "b.test")];
        certificates.map(|(key, site)| {
            let labels = format!("{{key=\"{key}\",site=\"{site}\"}}");
            gateway.metric(&format!(
                "hsmux_gateway_certificate_expires_seconds{labels}"
            ))
        })
    };
    let before = expire();
    assert!(before.iter().all(|expires| *expires > 0), "{before:?}");
    fs::write(gateway.rig.path("ec.pem"), "not a certificate").expect("write");
    until("the mistake is told", PATIENCE, || {
        let log = gateway.rig.daemon.as_ref().expect("a daemon").log();
        log.contains("it is served as before").then_some(())
    });
    assert_eq!(expire(), before);
}
