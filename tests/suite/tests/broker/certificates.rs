//! HTTPS: certificates of clients, and of the server that come and go.

use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Instant;

use hsmux_suite::{PATIENCE, Rig, Setup, until};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::connection::{Connection, tcp};
use crate::rig::Broker;
use hsmux_suite::pki::{ALWAYS, Authority};

const READ: &str = "/v1/transit/keys/app-none";

fn section(certificate: &str, more: &str) -> String {
    format!(
        r#"
[broker]
listen = ["127.0.0.1:0"]
certificate = "{certificate}.pem"
key = "{certificate}.key"
{more}

[[policy]]
clients = ["dns:app.example", "token:app"]
keys = ["*"]
allow = ["*"]
"#
    )
}

/// The other end's certificate, if it is of this authority, and a connection on which to ask.
fn open(
    broker: &Broker,
    authority: &Authority,
    own: Option<&str>,
) -> std::io::Result<(Vec<u8>, Connection)> {
    let mut roots = RootCertStore::empty();
    let root =
        CertificateDer::from_pem_file(authority.certificate(&broker.rig)).expect("a certificate");
    roots.add(root).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let path = |end: &str| broker.rig.path(&format!("{file}.{end}"));
            let own = CertificateDer::from_pem_file(path("pem")).expect("a certificate");
            let key = PrivateKeyDer::from_pem_file(path("key")).expect("its key");
            builder
                .with_client_auth_cert(vec![own], key)
                .expect("a pair")
        }
    };
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    let mut tls = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream: TcpStream = tcp(&broker.url);
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)?;
    }
    let shown = tls
        .peer_certificates()
        .and_then(<[_]>::first)
        .expect("a certificate");
    let shown = shown.to_vec();
    Ok((shown, Connection::over(StreamOwned::new(tls, stream))))
}

/// The status of an answer to a client with this certificate.
fn ask(
    broker: &Broker,
    authority: &Authority,
    own: Option<&str>,
    token: &str,
) -> std::io::Result<u16> {
    let (_, mut connection) = open(broker, authority, own)?;
    Ok(connection.ask("GET", READ, token, "")?.status)
}

#[test]
fn a_client_certificate_lets_in_while_it_is_good() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let servers = Authority::new(&rig, "servers");
    servers.issue(&rig, "server", "IP:127.0.0.1", ALWAYS);
    let clients = Authority::new(&rig, "clients");
    let name = "DNS:app.example";
    clients.issue(&rig, "good", name, ALWAYS);
    clients.issue(&rig, "other", "DNS:other.example", ALWAYS);
    clients.issue(
        &rig,
        "expired",
        name,
        ("20200101000000Z", "20200201000000Z"),
    );
    clients.issue(&rig, "early", name, ("20980101000000Z", "20990101000000Z"));
    fs::rename(rig.path("clients.pem"), rig.path("trusted.pem")).unwrap();
    // An authority of the same name, but with another key.
    Authority::new(&rig, "clients").issue(&rig, "forged", name, ALWAYS);
    Authority::new(&rig, "strangers").issue(&rig, "stranger", name, ALWAYS);
    let broker = Broker::of(rig, &section("server", "client_ca = \"trusted.pem\""));
    let ask = |own, token: &str| ask(&broker, &servers, own, token);
    let before = broker.served();
    assert_eq!(ask(Some("good"), "").unwrap(), 404);
    assert_eq!(ask(Some("other"), "").unwrap(), 403);
    assert_eq!(ask(None, "").unwrap(), 403);
    assert_eq!(ask(None, &broker.token).unwrap(), 404);
    for bad in ["expired", "early", "forged", "stranger"] {
        for token in ["", &broker.token] {
            let answer = ask(Some(bad), token);
            assert!(answer.is_err(), "{bad}: {answer:?}");
        }
    }
    assert_eq!(broker.served(), before);
}

#[test]
fn a_client_that_does_no_handshake_is_given_up_after_ten_seconds() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let servers = Authority::new(&rig, "servers");
    servers.issue(&rig, "server", "IP:127.0.0.1", ALWAYS);
    let broker = Broker::of(rig, &section("server", "idle_timeout = \"1h\""));
    let begun = Instant::now();
    // The second has said that its TLS begins.
    let clients = ["", "\x16\x03\x01"].map(|said| {
        let mut client = Connection::tcp(&broker.url);
        client.say(said.as_bytes()).expect("send");
        client
    });
    for mut client in clients {
        client.wait_for_end();
        let waited = begun.elapsed();
        assert!((10..60).contains(&waited.as_secs()), "{waited:?}");
    }
    assert_eq!(ask(&broker, &servers, None, &broker.token).unwrap(), 404);
}

/// SHA-256 of a certificate, in hexadecimal digits.
fn fingerprint(broker: &Broker, file: &str) -> String {
    let line = format!("x509 -in {file}.pem -noout -fingerprint -sha256");
    let said = broker.rig.run("openssl").args(&line).ok().out;
    let (_, digits) = said.trim().split_once('=').expect("a fingerprint");
    digits.replace(':', "").to_lowercase()
}

#[test]
fn a_client_is_each_name_of_its_certificate_and_without_a_subject_not_everybody_without_one() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let servers = Authority::new(&rig, "servers");
    servers.issue(&rig, "server", "IP:127.0.0.1", ALWAYS);
    let clients = Authority::new(&rig, "clients");
    clients.issue(
        &rig,
        "one",
        "URI:spiffe://shop/one,email:one@shop.example",
        ALWAYS,
    );
    for file in ["two", "three"] {
        clients.issue_to(&rig, file, "/", "URI:spiffe://shop/none", ALWAYS);
    }
    let mut broker = Broker::of(
        rig,
        &section(
            "server",
            "client_ca = \"clients.pem\"\n[audit]\nkeys = true",
        ),
    );
    let two = fingerprint(&broker, "two");
    let module = broker.rig.config.module.clone();
    let ask = |broker: &Broker, own: &str| ask(broker, &servers, Some(own), "").expect("an answer");
    for (identity, let_in) in [
        ("subject:CN=one".to_owned(), "one"),
        ("uri:spiffe://shop/one".into(), "one"),
        ("email:one@shop.example".into(), "one"),
        (format!("fingerprint:{two}"), "two"),
    ] {
        broker.rig.config.module = module.replace("dns:app.example", &identity);
        broker.rig.reload();
        for own in ["one", "two", "three"] {
            let wanted = if own == let_in { 404 } else { 403 };
            until(
                &format!("{identity}: {own} is answered {wanted}"),
                PATIENCE,
                || (ask(&broker, own) == wanted).then_some(()),
            );
        }
    }
    let three = fingerprint(&broker, "three");
    until("their lines", PATIENCE, || {
        let trail = fs::read_to_string(broker.rig.path("state/audit.log")).expect("the trail");
        let of = |name: &str, certificate: &str| {
            let mut lines = trail.lines().map(serde_json::from_str::<Value>);
            lines.any(|line| {
                line.is_ok_and(|line| line["actor"] == name && line["certificate"] == certificate)
            })
        };
        let one = fingerprint(&broker, "one");
        (of("subject:CN=one", &one)
            && of("uri:spiffe://shop/none", &two)
            && of("uri:spiffe://shop/none", &three))
        .then_some(())
    });
}

#[test]
fn certificates_change_while_connections_stay() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let servers = Authority::new(&rig, "servers");
    servers.issue(&rig, "server", "IP:127.0.0.1", ALWAYS);
    let name = "DNS:app.example";
    let clients = Authority::new(&rig, "clients");
    clients.issue(&rig, "client", name, ALWAYS);
    let more = "client_ca = \"clients.pem\"";
    let mut broker = Broker::of(rig, &section("server", more));
    let (first, mut old) = open(&broker, &servers, Some("client")).unwrap();
    let mut still = || assert_eq!(old.ask("GET", READ, "", "").unwrap().status, 404);
    still();

    // Other files of the same names. In between the certificate and the key do not fit each other.
    servers.issue(&broker.rig, "server", "IP:127.0.0.1", ALWAYS);
    let second = other_certificate(&broker, &servers, &first);
    still();

    // What cannot be read is not taken over.
    let certificate = broker.rig.path("server.pem");
    fs::write(&certificate, "no certificate").unwrap();
    let daemon = broker.rig.daemon.as_mut().expect("a daemon");
    daemon.wait_for("no certificate in it");
    assert_eq!(open(&broker, &servers, None).unwrap().0, second);
    still();

    // Files of other names, by SIGHUP.
    servers.issue(&broker.rig, "another", "IP:127.0.0.1", ALWAYS);
    let module = broker.rig.config.module.clone();
    broker.rig.config.module = module.replace("server.", "another.");
    broker.rig.reload();
    other_certificate(&broker, &servers, &second);
    still();

    // Clients of another authority.
    Authority::new(&broker.rig, "clients").issue(&broker.rig, "newcomer", name, ALWAYS);
    until("the newcomer is let in", PATIENCE, || {
        let status = ask(&broker, &servers, Some("newcomer"), "");
        (status.ok()? == 404).then_some(())
    });
    assert!(ask(&broker, &servers, Some("client"), "").is_err());
    still();
}

fn set_mode(broker: &Broker, file: &str, mode: u32) {
    fs::set_permissions(broker.rig.path(file), Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_key_that_others_can_read_is_refused_and_the_broker_goes_on() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let servers = Authority::new(&rig, "servers");
    for file in ["server", "another"] {
        servers.issue(&rig, file, "IP:127.0.0.1", ALWAYS);
    }
    let mut broker = Broker::of(rig, &section("server", ""));
    let (first, _) = open(&broker, &servers, None).unwrap();
    let goes_on = |broker: &Broker| {
        assert_eq!(ask(broker, &servers, None, &broker.token).unwrap(), 404);
        assert_eq!(open(broker, &servers, None).unwrap().0, first);
    };
    // Its token was just made.
    until("the client is known", PATIENCE, || {
        let status = ask(&broker, &servers, None, &broker.token);
        (status.ok()? == 404).then_some(())
    });

    // The key that is in use.
    set_mode(&broker, "server.key", 0o644);
    let daemon = broker.rig.daemon.as_mut().expect("a daemon");
    daemon.wait_for("chmod 640");
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains("chmod 640"));
    let line = line.expect("a line");
    assert!(line.contains("server.key"), "{line}");
    goes_on(&broker);

    // The key of a reload.
    set_mode(&broker, "another.key", 0o644);
    let module = broker.rig.config.module.clone();
    broker.rig.config.module = module.replace("server.", "another.");
    broker.rig.write_config();
    let reload = broker.rig.hsmux("reload").fails();
    reload.says("another.key").says("chmod 640");
    goes_on(&broker);

    for file in ["server.key", "another.key"] {
        set_mode(&broker, file, 0o600);
    }
    broker.rig.hsmux("reload").ok();
    other_certificate(&broker, &servers, &first);
}

/// Waits until new connections are shown another certificate than this one, and answers which.
fn other_certificate(broker: &Broker, authority: &Authority, than: &[u8]) -> Vec<u8> {
    until("another certificate", PATIENCE, || {
        let (shown, _) = open(broker, authority, None).expect("a connection");
        (shown != than).then_some(shown)
    })
}
