//! certbot and lego get certificates for keys that stay in the pool.

use std::fs;

use hsmux_suite::{PATIENCE, Rig, Setup, until};

use crate::authority::{Authority, Names};
use crate::balancer::Client;
use crate::rig::{ASK, FOLDER, Gateway};

const HTTP: &str = "http = [\"127.0.0.1:0\"]";

/// A gateway with one site, on a host that has only a token yet.
fn fresh(acme: &str, certificate: &str) -> Gateway {
    let rig = Rig::empty(Setup::Daemon, 1);
    for folder in ["www", "acme"] {
        fs::create_dir(rig.path(folder)).expect("a folder");
    }
    fs::write(rig.path("www/page.txt"), "a page\n").expect("a page");
    let site = format!(
        "[[site]]\nnames = [\"a.test\", \"b.test\", \"*\"]\ncertificates = [\"{certificate}\"]\n{FOLDER}"
    );
    Gateway::start(rig, &format!("{HTTP}\nacme = \"{acme}\""), &site)
}

/// Generates a key in the token, not extractable, and a request for both names.
fn request(rig: &Rig, key: &str) {
    rig.hsmux(&format!("key generate {key} --label web")).ok();
    let access = rig.softhsm.tool("hsm1").args("-O --type privkey").ok();
    access.says("sensitive").says("never extractable");
    rig.hsmux("key csr pkcs11:object=web --subject CN=a.test")
        .args("--name a.test --name b.test --out web.csr")
        .ok();
}

/// The certificate that clients get, as PEM without its frame.
fn served(gateway: &Gateway) -> Option<String> {
    let said = gateway.s_client("-servername b.test", ASK);
    let (_, certificate) = said.split_once("-----BEGIN CERTIFICATE-----")?;
    Some(certificate.split_once("-----END")?.0.to_owned())
}

fn is_served(gateway: &Gateway, file: &str) {
    let file = fs::read_to_string(gateway.rig.path(file)).expect("a certificate");
    until("the certificate is served", PATIENCE, || {
        let served = served(gateway)?;
        file.contains(&served).then_some(())
    });
}

#[test]
fn a_first_certificate_is_served_and_its_renewal_ends_no_connection() {
    let gateway = fresh("acme", "web.pem");
    let rig = &gateway.rig;
    rig.hsmux("config check")
        .ok()
        .says("web.pem is not there yet");
    assert!(
        gateway
            .s_client("-servername a.test", "")
            .contains("unrecognized name")
    );
    assert_eq!(gateway.metric("hsmux_gateway_certificates_awaited"), 1);
    assert!(gateway.health().contains(" 200 "));
    request(rig, "ec:P-256");
    let authority = Authority::start(rig, &Names::new(), &gateway.http);
    let webroot = "--webroot --webroot-path acme";
    authority.certbot(rig, webroot, "web.csr", "new.pem").ok();
    fs::rename(rig.path("new.pem"), rig.path("web.pem")).expect("a certificate");
    is_served(&gateway, "web.pem");
    gateway.curl("a.test", "/page.txt", "").says("a page");
    assert_eq!(gateway.metric("hsmux_gateway_certificates_awaited"), 0);
    let challenges = || gateway.metric("hsmux_gateway_plain_requests_total{answer=\"challenge\"}");
    let fetched = challenges();
    assert!(fetched >= 2, "one for each name");

    let port = gateway.address.rsplit_once(':').expect("a port").1;
    let mut client = Client::connect(port.parse().expect("a port"));
    client.ask();
    authority.certbot(rig, webroot, "web.csr", "next.pem").ok();
    fs::rename(rig.path("next.pem"), rig.path("web.pem")).expect("a certificate");
    is_served(&gateway, "web.pem");
    client.ask();
    assert!(
        challenges() > fetched,
        "nobody has looked at the second challenges"
    );
}

#[test]
fn a_removed_certificate_is_served_until_the_next_one_exists() {
    let gateway = fresh("acme", "web.pem");
    let rig = &gateway.rig;
    request(rig, "ec:P-256");
    let authority = Authority::start(rig, &Names::new(), &gateway.http);
    let webroot = "--webroot --webroot-path acme";
    authority.certbot(rig, webroot, "web.csr", "web.pem").ok();
    is_served(&gateway, "web.pem");
    fs::remove_file(rig.path("web.pem")).expect("a certificate");
    let daemon = rig.daemon.as_ref().expect("a daemon");
    until("it is missed", PATIENCE, || {
        daemon
            .log()
            .contains("it is served as before")
            .then_some(())
    });
    gateway.curl("a.test", "/page.txt", "").says("a page");
    fs::write(rig.path("web.pem"), "half of a certif").expect("a file");
    gateway.curl("a.test", "/page.txt", "").says("a page");
    authority.certbot(rig, webroot, "web.csr", "new.pem").ok();
    fs::rename(rig.path("new.pem"), rig.path("web.pem")).expect("a certificate");
    is_served(&gateway, "web.pem");
}

#[test]
fn lego_renews_a_certificate() {
    let file = "lego/certificates/a.test.crt";
    let gateway = fresh("acme", file);
    let rig = &gateway.rig;
    request(rig, "rsa:2048");
    let authority = Authority::start(rig, &Names::new(), &gateway.http);
    let webroot = "--http.webroot acme";
    authority.lego(rig, webroot, "web.csr", "run").ok();
    is_served(&gateway, file);
    let first = served(&gateway);
    let renew = |days| format!("renew --no-random-sleep --days {days}");
    let early = authority.lego(rig, webroot, "web.csr", &renew(30));
    early.ok().says("no renewal");
    authority.lego(rig, webroot, "web.csr", &renew(3000)).ok();
    is_served(&gateway, file);
    assert_ne!(served(&gateway), first);
}

/// Both ACME clients listen themselves, and check the host.
#[test]
fn challenges_are_passed_to_a_client_that_listens_itself() {
    let names = Names::new();
    let at = &names.address;
    let gateway = fresh(&format!("http://{at}:8080"), "web.pem");
    let rig = &gateway.rig;
    request(rig, "ec:P-256");
    let authority = Authority::start(rig, &names, &gateway.http);
    let standalone = format!("--standalone --http-01-address {at} --http-01-port 8080");
    authority
        .certbot(rig, &standalone, "web.csr", "web.pem")
        .ok();
    is_served(&gateway, "web.pem");
    let listens = format!("--http.port {at}:8080");
    authority.lego(rig, &listens, "web.csr", "run").ok();
    fs::copy(
        rig.path("lego/certificates/a.test.crt"),
        rig.path("web.pem"),
    )
    .expect("a certificate");
    is_served(&gateway, "web.pem");
}
