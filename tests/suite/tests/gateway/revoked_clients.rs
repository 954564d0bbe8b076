//! Revoked client certificates.

use std::fs;
use std::process::{Child, Command, Stdio};

use hsmux_suite::pki::{ALWAYS, Authority};
use hsmux_suite::{PATIENCE, Rig, until};

use crate::rig::{ASK, BOTH, FOLDER, Gateway, configure};

const LISTS: &str = "client_ca = \"clients.pem\"\nclient_crl = \"clients.crl\"";
const VERSIONS: [&str; 2] = ["tls1_3", "tls1_2"];

/// Certificates `one` and `two` of an authority, and its empty list.
fn prepare() -> (Rig, Authority) {
    let rig = Gateway::prepare();
    let clients = Authority::new(&rig, "clients");
    for name in ["one", "two"] {
        clients.issue(&rig, name, "DNS:client.example", ALWAYS);
    }
    clients.list(&rig, "clients.crl", None);
    (rig, clients)
}

fn site(lines: &str) -> String {
    format!("[[site]]\n{BOTH}\n{lines}\n{FOLDER}")
}

fn start() -> (Gateway, Authority) {
    let (rig, clients) = prepare();
    (Gateway::start(rig, "", &site(LISTS)), clients)
}

/// The output of a client with this certificate.
fn ask(gateway: &Gateway, version: &str, name: &str) -> String {
    let options = format!("-{version} -cert {name}.pem -key {name}.key");
    gateway.s_client(&options, ASK)
}

fn until_served(gateway: &Gateway, name: &str, served: bool) {
    until("its certificate is judged anew", PATIENCE, || {
        let is_served = ask(gateway, "tls1_3", name).contains("a page");
        (is_served == served).then_some(())
    });
}

/// A silent client.
fn idle(gateway: &Gateway, version: &str, name: &str) -> Child {
    let client = Command::new("openssl")
        .current_dir(gateway.rig.path(""))
        .args(["s_client", "-quiet", "-connect", &gateway.address])
        .arg(format!("-{version}"))
        .args([
            "-cert",
            &format!("{name}.pem"),
            "-key",
            &format!("{name}.key"),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    client.expect("a client")
}

fn log(gateway: &Gateway) -> String {
    gateway.rig.daemon.as_ref().expect("a daemon").log()
}

#[test]
fn a_revoked_certificate_is_refused_and_its_open_connections_end() {
    let (gateway, clients) = start();
    for name in ["one", "two"] {
        for version in VERSIONS {
            let said = ask(&gateway, version, name);
            assert!(said.contains("a page"), "{said}");
        }
    }
    let before = gateway.metric("hsmux_gateway_handshakes_total");
    let mut taken_back = VERSIONS.map(|version| idle(&gateway, version, "one"));
    let mut good = idle(&gateway, "tls1_3", "two");
    until("all are there", PATIENCE, || {
        let handshakes = gateway.metric("hsmux_gateway_handshakes_total");
        (handshakes == before + 3).then_some(())
    });
    clients.revoke(&gateway.rig, "one");
    clients.list(&gateway.rig, "clients.crl", None);
    for client in &mut taken_back {
        until("it is ended", PATIENCE, || {
            client.try_wait().expect("a client")
        });
    }
    for version in VERSIONS {
        let said = ask(&gateway, version, "one");
        assert!(said.contains("alert certificate revoked"), "{said}");
        assert!(!said.contains("a page"), "{said}");
        assert!(ask(&gateway, version, "two").contains("a page"));
    }
    assert!(good.try_wait().expect("a client").is_none(), "it is good");
    good.kill().expect("a client to end");
    good.wait().expect("its end");
    assert!(log(&gateway).contains("is revoked"), "{}", log(&gateway));
}

/// A resumed session would skip the check.
#[test]
fn no_session_resumes_a_revoked_certificate() {
    let (gateway, clients) = start();
    for version in VERSIONS {
        let options = format!("-{version} -cert one.pem -key one.key -sess_out {version}.session");
        let said = gateway.s_client(&options, ASK);
        assert!(said.contains("a page"), "{said}");
    }
    clients.revoke(&gateway.rig, "one");
    clients.list(&gateway.rig, "clients.crl", None);
    until_served(&gateway, "one", false);
    for version in VERSIONS {
        let session = gateway.rig.path(&format!("{version}.session"));
        // Without a ticket the client may write no session.
        if fs::metadata(&session).is_ok_and(|file| file.len() > 0) {
            let options =
                format!("-{version} -cert one.pem -key one.key -sess_in {version}.session");
            let said = gateway.s_client(&options, ASK);
            assert!(
                !said.contains("Reused") && !said.contains("a page"),
                "{said}"
            );
        }
    }
}

#[test]
fn an_expired_list_refuses_all_certificates() {
    let (gateway, clients) = start();
    until_served(&gateway, "one", true);
    let mut open = idle(&gateway, "tls1_3", "one");
    clients.list_for_seconds(&gateway.rig, "clients.crl", 3);
    until_served(&gateway, "one", false);
    until("the open connection is ended", PATIENCE, || {
        open.try_wait().expect("a client")
    });
    until("it is told", PATIENCE, || {
        log(&gateway)
            .contains("clients.crl HAS EXPIRED")
            .then_some(())
    });
    clients.list(&gateway.rig, "clients.crl", None);
    until_served(&gateway, "one", true);
}

#[test]
fn an_older_list_is_logged_and_the_newer_one_stays_in_use() {
    let (gateway, clients) = start();
    fs::copy(gateway.rig.path("clients.crl"), gateway.rig.path("old.crl")).expect("a copy");
    clients.revoke(&gateway.rig, "one");
    // Dates in lists have a resolution of seconds.
    clients.list(
        &gateway.rig,
        "clients.crl",
        Some(("20380101000000Z", ALWAYS.1)),
    );
    until_served(&gateway, "one", false);
    fs::rename(gateway.rig.path("old.crl"), gateway.rig.path("clients.crl")).expect("a list");
    until("it is told", PATIENCE, || {
        let log = log(&gateway);
        log.contains("is older than the one in use").then_some(())
    });
    until_served(&gateway, "one", false);
    until_served(&gateway, "two", true);
}

#[test]
fn a_list_that_cannot_be_read_changes_nothing() {
    let (gateway, clients) = start();
    clients.revoke(&gateway.rig, "one");
    clients.list(&gateway.rig, "clients.crl", None);
    until_served(&gateway, "one", false);
    fs::write(gateway.rig.path("clients.crl"), "no list").expect("a file");
    until("the mistake is told", PATIENCE, || {
        let log = log(&gateway);
        (log.contains("clients.crl") && log.contains("it is served as before")).then_some(())
    });
    until_served(&gateway, "one", false);
    until_served(&gateway, "two", true);
    // DER is accepted as well.
    let convert = gateway
        .rig
        .run("openssl")
        .args("ca -batch -config clients.cnf -cert clients.pem");
    convert
        .args("-keyfile clients.key -gencrl -out new.pem")
        .ok();
    let convert = gateway
        .rig
        .run("openssl")
        .args("crl -in new.pem -outform DER -out new.der");
    convert.ok();
    fs::rename(gateway.rig.path("new.der"), gateway.rig.path("clients.crl")).expect("a list");
    let read = || log(&gateway).matches("has read its sites again").count();
    let before = read();
    until("it is read", PATIENCE, || {
        (read() >= before.max(2)).then_some(())
    });
    until_served(&gateway, "one", false);
    until_served(&gateway, "two", true);
}

#[test]
fn without_its_lists_a_site_accepts_what_they_revoked() {
    let (mut gateway, clients) = start();
    clients.revoke(&gateway.rig, "one");
    clients.list(&gateway.rig, "clients.crl", None);
    until_served(&gateway, "one", false);
    for (lines, served) in [("client_ca = \"clients.pem\"", true), (LISTS, false)] {
        configure(&mut gateway.rig, "", &site(lines));
        gateway.rig.reload();
        until_served(&gateway, "one", served);
    }
    until_served(&gateway, "two", true);
}

#[test]
fn a_list_of_another_authority_is_refused() {
    let (mut rig, _clients) = prepare();
    let strangers = Authority::new(&rig, "strangers");
    strangers.list(&rig, "clients.crl", None);
    configure(&mut rig, "", &site(LISTS));
    rig.write_config();
    let said = rig.hsmux("gateway").fails();
    said.says("clients.crl")
        .says("not signed by an authority of client_ca");
    // The list of a stranger with the same name is refused as well.
    let forged = Authority::new(&rig, "forged");
    fs::copy(rig.path("forged.pem"), rig.path("own.pem")).expect("a copy");
    forged.list(&rig, "clients.crl", None);
    rig.hsmux("gateway")
        .fails()
        .says("not signed by an authority of client_ca");
    configure(&mut rig, "", &site("client_crl = \"clients.crl\""));
    rig.write_config();
    rig.hsmux("gateway").fails().says("give client_ca");
}
