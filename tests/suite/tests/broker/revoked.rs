//! Client certificates that were taken back, as curl and openssl see it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use hsmux_suite::pki::{ALWAYS, Authority};
use hsmux_suite::{PATIENCE, Rig, Setup, until};

use crate::rig::Broker;

const SECTION: &str = r#"
[broker]
listen = ["127.0.0.1:0"]
certificate = "server.pem"
key = "server.key"
client_ca = "clients.pem"
client_crl = ["clients.crl"]

[[policy]]
clients = ["dns:client.example"]
keys = ["*"]
allow = ["*"]
"#;

/// Certificates `one` and `two` of an authority, and its list, which names none.
fn prepare() -> (Rig, Authority) {
    let rig = Rig::empty(Setup::Daemon, 1);
    let servers = Authority::new(&rig, "servers");
    servers.issue(&rig, "server", "IP:127.0.0.1", ALWAYS);
    let clients = Authority::new(&rig, "clients");
    for name in ["one", "two"] {
        clients.issue(&rig, name, "DNS:client.example", ALWAYS);
    }
    clients.list(&rig, "clients.crl", None);
    (rig, clients)
}

fn start() -> (Broker, Authority) {
    let (rig, clients) = prepare();
    (Broker::of(rig, SECTION), clients)
}

fn address(broker: &Broker) -> &str {
    broker.url.trim_start_matches("http://")
}

/// The status that a client with this certificate is answered: of a key that is not there.
fn ask(broker: &Broker, version: &str, name: &str) -> String {
    let url = format!("https://{}/v1/transit/keys/none", address(broker));
    let curl = broker.rig.run("curl");
    let curl = curl.args("--silent --max-time 60 --cacert servers.pem --output answer");
    let curl = curl.args("--write-out %{http_code}").args(version);
    let curl = curl.args(&format!("--cert {name}.pem --key {name}.key"));
    curl.arg(url).finish().out
}

const VERSIONS: [&str; 2] = ["--tlsv1.3", "--tls-max 1.2"];

fn until_answered(broker: &Broker, name: &str, status: &str) {
    until("its certificate is judged anew", PATIENCE, || {
        (ask(broker, VERSIONS[0], name) == status).then_some(())
    });
}

/// A client that has been answered, and says nothing any more.
fn idle(broker: &Broker, name: &str) -> Child {
    let client = Command::new("openssl")
        .current_dir(broker.rig.path(""))
        .args(["s_client", "-quiet", "-connect", address(broker)])
        .args([
            "-cert",
            &format!("{name}.pem"),
            "-key",
            &format!("{name}.key"),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut client = client.expect("a client");
    let mut words = client.stdin.as_ref().expect("its words");
    let asked = words.write_all(b"GET /v1/transit/keys/none HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.expect("a request");
    let mut line = String::new();
    let answer = client.stdout.as_mut().expect("an answer");
    let read = BufReader::new(answer).read_line(&mut line);
    read.expect("a line");
    assert!(line.contains(" 404 "), "{line}");
    client
}

fn log(broker: &Broker) -> String {
    broker.rig.daemon.as_ref().expect("a daemon").log()
}

#[test]
fn a_revoked_certificate_is_refused_and_its_open_connections_end() {
    let (broker, clients) = start();
    for name in ["one", "two"] {
        for version in VERSIONS {
            assert_eq!(ask(&broker, version, name), "404");
        }
    }
    let mut one = idle(&broker, "one");
    let mut two = idle(&broker, "two");
    clients.revoke(&broker.rig, "one");
    clients.list(&broker.rig, "clients.crl", None);
    until("it is ended", PATIENCE, || {
        one.try_wait().expect("a client")
    });
    for version in VERSIONS {
        assert_eq!(ask(&broker, version, "one"), "000");
        assert_eq!(ask(&broker, version, "two"), "404");
    }
    assert!(two.try_wait().expect("a client").is_none(), "it is good");
    two.kill().expect("a client to end");
    two.wait().expect("its end");
    assert!(log(&broker).contains("is revoked"), "{}", log(&broker));
}

#[test]
fn a_list_that_has_expired_lets_nobody_in_and_one_that_is_wrong_changes_nothing() {
    let (broker, clients) = start();
    until_answered(&broker, "one", "404");
    clients.list_for_seconds(&broker.rig, "clients.crl", 3);
    until_answered(&broker, "one", "000");
    until("it is told", PATIENCE, || {
        log(&broker)
            .contains("clients.crl HAS EXPIRED")
            .then_some(())
    });
    clients.revoke(&broker.rig, "one");
    clients.list(&broker.rig, "clients.crl", None);
    until_answered(&broker, "two", "404");
    assert_eq!(ask(&broker, VERSIONS[0], "one"), "000");
    let strangers = Authority::new(&broker.rig, "strangers");
    strangers.list(&broker.rig, "clients.crl", None);
    until("the mistake is told", PATIENCE, || {
        let log = log(&broker);
        log.contains("not signed by an authority of client_ca")
            .then_some(())
    });
    assert_eq!(ask(&broker, VERSIONS[0], "one"), "000");
    assert_eq!(ask(&broker, VERSIONS[0], "two"), "404");
}

#[test]
fn an_older_list_is_told_and_the_newer_one_stays_in_use() {
    let (broker, clients) = start();
    let [list, old] = ["clients.crl", "old.crl"].map(|file| broker.rig.path(file));
    fs::copy(&list, &old).expect("a copy");
    clients.revoke(&broker.rig, "one");
    // Dates of lists have seconds.
    clients.list(
        &broker.rig,
        "clients.crl",
        Some(("20380101000000Z", ALWAYS.1)),
    );
    until_answered(&broker, "one", "000");
    fs::rename(old, list).expect("a list");
    until("it is told", PATIENCE, || {
        let log = log(&broker);
        log.contains("is older than the one in use").then_some(())
    });
    assert_eq!(ask(&broker, VERSIONS[0], "one"), "000");
    assert_eq!(ask(&broker, VERSIONS[0], "two"), "404");
}

#[test]
fn without_its_lists_a_broker_accepts_what_they_revoked() {
    let (mut broker, clients) = start();
    clients.revoke(&broker.rig, "one");
    clients.list(&broker.rig, "clients.crl", None);
    until_answered(&broker, "one", "000");
    let with_lists = broker.rig.config.module.clone();
    let line = "client_crl = [\"clients.crl\"]\n";
    broker.rig.config.module = with_lists.replace(line, "");
    broker.rig.reload();
    until_answered(&broker, "one", "404");
    broker.rig.config.module = with_lists;
    broker.rig.reload();
    until_answered(&broker, "one", "000");
    assert_eq!(ask(&broker, VERSIONS[0], "two"), "404");
}

#[test]
fn a_list_of_another_authority_is_a_mistake() {
    let (mut rig, _clients) = prepare();
    let strangers = Authority::new(&rig, "strangers");
    strangers.list(&rig, "clients.crl", None);
    rig.config.module = SECTION.into();
    rig.write_config();
    let said = rig.hsmux("serve").fails();
    said.says("clients.crl")
        .says("not signed by an authority of client_ca");
}
