//! Sessions that another host resumes, or the same host after a restart.

use std::fs;

use hsmux_suite::{PATIENCE, Rig, Run, until};

use crate::balancer::{self, Cluster};
use crate::rig::{ASK, BOTH, FOLDER, Gateway, certify, configure};

const VERSIONS: [&str; 2] = ["-tls1_3", "-tls1_2"];
const SHARED: &str = "ticket_secret = \"tickets.secret\"";

/// A host with this ticket secret.
fn host(secret: &str) -> Gateway {
    host_with(secret, "")
}

/// A host with this ticket secret and more lines.
fn host_with(secret: &str, more: &str) -> Gateway {
    let rig = Gateway::prepare();
    share(&rig, secret);
    Gateway::start(rig, &format!("{SHARED}\n{more}"), &site())
}

fn site() -> String {
    format!("[[site]]\n{BOTH}\n{FOLDER}")
}

fn share(rig: &Rig, secret: &str) {
    let file = rig.path("tickets.secret");
    let new = rig.path("tickets.new");
    fs::write(&new, secret.repeat(32)).expect("a secret");
    Run::new("chmod").arg("600").arg(&new).ok();
    fs::rename(new, file).expect("the secret's place");
}

/// Begins a session, and saves it in a file of `keeper`.
fn begin(gateway: &Gateway, keeper: &Rig, version: &str) {
    let file = keeper.path("session");
    let said = gateway.s_client(&format!("{version} -sess_out {}", file.display()), ASK);
    assert!(said.contains("New, TLSv1"), "{said}");
}

fn resumes(gateway: &Gateway, keeper: &Rig, version: &str) -> bool {
    let file = keeper.path("session");
    let said = gateway.s_client(&format!("{version} -sess_in {}", file.display()), ASK);
    assert!(said.contains("a page"), "{said}");
    said.contains("Reused, TLSv1")
}

fn taken_over(gateway: &Gateway) {
    until("the key of the tickets is taken over", PATIENCE, || {
        (gateway.metric("hsmux_gateway_ticket_key_since_seconds") > 0).then_some(())
    });
}

#[test]
fn hosts_with_one_secret_resume_each_others_sessions() {
    let (one, other, stranger) = (host("a"), host("a"), host("b"));
    for version in VERSIONS {
        begin(&one, &one.rig, version);
        let signatures = other.metric("hsmux_gateway_signatures_total");
        assert!(resumes(&other, &one.rig, version), "{version}");
        let after = other.metric("hsmux_gateway_signatures_total");
        assert_eq!(
            after, signatures,
            "a session that is resumed costs no signature"
        );
        assert!(!resumes(&stranger, &one.rig, version), "{version}");
    }
    assert!(one.metric("hsmux_gateway_ticket_key_since_seconds") > 0);
}

/// haproxy alternates between the hosts: both of them resume the session.
#[test]
fn a_session_is_resumed_at_any_host_of_the_balancer() {
    let host = || host_with("a", "proxy_protocol = true");
    let cluster = Cluster::before([host(), host()], "haproxy", balancer::on_port);
    let [one, other] = &cluster.hosts;
    let count = |series: &str| [one, other].map(|host| host.metric(series));
    for version in VERSIONS {
        let connect = |session: &str| {
            let client = one.rig.run("openssl").args("s_client -ign_eof -connect");
            let client = client.arg(format!("127.0.0.1:{}", cluster.port));
            let said = client.args(version).args(session).input(ASK).finish().all();
            assert!(said.contains("a page"), "{said}");
            said
        };
        let begun = connect("-sess_out session");
        assert!(begun.contains("New, TLSv1"), "{begun}");
        let signatures = count("hsmux_gateway_signatures_total");
        let resumed = || count("hsmux_gateway_handshakes_total{kind=\"resumed\"");
        let before = resumed();
        until("both hosts have resumed it", PATIENCE, || {
            let again = connect("-sess_in session");
            assert!(again.contains("Reused, TLSv1"), "{version}: {again}");
            let after = resumed();
            (after[0] > before[0] && after[1] > before[1]).then_some(())
        });
        assert_eq!(count("hsmux_gateway_signatures_total"), signatures);
    }
}

#[test]
fn without_tickets_every_connection_is_a_full_handshake() {
    let with = Gateway::with_folder();
    let without = Gateway::start(Gateway::prepare(), "tickets = false", &site());
    for version in VERSIONS {
        let given = |gateway: &Gateway| {
            let said = gateway.s_client(version, ASK);
            assert!(said.contains("a page"), "{said}");
            said.contains("TLS session ticket:")
        };
        assert!(given(&with), "{version}");
        assert!(!given(&without), "{version}");
    }
    let (full, resumed) = ("{kind=\"full\"", "{kind=\"resumed\"");
    let count = |kind| without.metric(&format!("hsmux_gateway_handshakes_total{kind}"));
    assert_eq!((count(full), count(resumed)), (2, 0));
}

#[test]
fn a_new_secret_ends_old_sessions() {
    let gateway = host("a");
    begin(&gateway, &gateway.rig, "-tls1_3");
    assert!(resumes(&gateway, &gateway.rig, "-tls1_3"));
    share(&gateway.rig, "b");
    until("the new secret is taken over", PATIENCE, || {
        (!resumes(&gateway, &gateway.rig, "-tls1_3")).then_some(())
    });
    begin(&gateway, &gateway.rig, "-tls1_3");
    assert!(resumes(&gateway, &gateway.rig, "-tls1_3"));
}

/// Clients of `c.test` need a certificate.
#[test]
fn a_session_of_one_site_is_not_resumed_at_another() {
    let guarded = "client_ca = \"client.pem\"";
    let sites = [("a.test", ""), ("b.test", ""), ("c.test", guarded)]
        .map(|(name, more)| format!("[[site]]\nnames = [\"{name}\"]\n{BOTH}\n{more}\n{FOLDER}\n"));
    for lines in ["", SHARED] {
        let rig = Gateway::prepare();
        certify(&rig, "client", "ec", 30);
        share(&rig, "a");
        let gateway = Gateway::start(rig, lines, &sites.concat());
        let ask = |version: &str, name: &str, options: &str| {
            let request = ASK.replace("a.test", name);
            gateway.s_client(&format!("{version} -servername {name} {options}"), &request)
        };
        let (own, key) = (gateway.rig.path("client.pem"), gateway.rig.keys.file("ec"));
        let certificate = format!("-cert {} -key {}", own.display(), key.display());
        for version in VERSIONS {
            let said = ask(version, "c.test", &certificate);
            assert!(said.contains("a page"), "{lines} {version}: {said}");
            let said = ask(version, "a.test", "-sess_out session");
            assert!(said.contains("New, TLSv1"), "{lines} {version}: {said}");
            for (name, served, resumed) in [
                ("a.test", true, true),
                ("b.test", true, false),
                ("c.test", false, false),
            ] {
                let said = ask(version, name, "-sess_in session");
                let found = (said.contains("a page"), said.contains("Reused, TLSv1"));
                assert_eq!(found, (served, resumed), "{lines} {version} {name}: {said}");
            }
        }
    }
}

#[test]
fn a_session_from_before_certificates_were_required_is_not_resumed() {
    let rig = Gateway::prepare();
    certify(&rig, "client", "ec", 30);
    let mut gateway = Gateway::start(rig, "", &site());
    let versions = ["tls1_3", "tls1_2"];
    let ask = |gateway: &Gateway, options: &str| gateway.s_client(options, ASK);
    for version in versions {
        let session = format!("-{version} -sess_out {version}.session");
        let said = ask(&gateway, &session);
        assert!(said.contains("a page"), "{said}");
        let said = ask(&gateway, &session.replace("_out", "_in"));
        assert!(said.contains("Reused, TLSv1"), "{said}");
    }
    let guarded = format!("[[site]]\n{BOTH}\nclient_ca = \"client.pem\"\n{FOLDER}");
    configure(&mut gateway.rig, "", &guarded);
    gateway.rig.reload();
    until("certificates are required", PATIENCE, || {
        let said = ask(&gateway, "-tls1_3");
        (!said.contains("a page")).then_some(())
    });
    for version in versions {
        let said = ask(&gateway, &format!("-{version} -sess_in {version}.session"));
        let found = said.contains("a page") || said.contains("Reused, TLSv1");
        assert!(!found, "{said}");
    }
}

/// The secret never leaves the tokens. A host with the same keys in its tokens has the same secret.
#[test]
fn a_key_of_the_pool_outlives_a_restart() {
    let lines = "ticket_secret = \"pkcs11:object=tickets\"";
    let mut gateway = Gateway::start(Gateway::prepare(), lines, &site());
    assert_eq!(gateway.metric("hsmux_gateway_ticket_key_since_seconds"), 0);
    let log = gateway.rig.daemon.as_ref().expect("a daemon").log();
    assert!(
        log.contains("pkcs11:object=tickets") && log.contains("not shared"),
        "{log}"
    );
    gateway
        .rig
        .hsmux("key generate hmac:256 --label tickets")
        .ok();
    taken_over(&gateway);
    for version in VERSIONS {
        begin(&gateway, &gateway.rig, version);
        let mut rig = gateway.rig;
        rig.stop();
        gateway = Gateway::start(rig, lines, &site());
        taken_over(&gateway);
        assert!(resumes(&gateway, &gateway.rig, version), "{version}");
        assert_eq!(gateway.metric("hsmux_gateway_signatures_total"), 0);
    }
}

#[test]
fn an_invalid_secret_is_refused_at_the_start() {
    let cases = [
        ("600", "short", "less than 32 bytes"),
        ("644", "0123456789abcdef0123456789abcdef", "chmod 600"),
    ];
    for (mode, secret, message) in cases {
        let mut rig = Gateway::prepare();
        let file = rig.path("tickets.secret");
        fs::write(&file, secret).expect("a secret");
        Run::new("chmod").arg(mode).arg(&file).ok();
        configure(&mut rig, SHARED, &site());
        rig.write_config();
        let said = rig.hsmux("gateway").fails();
        said.says("tickets.secret").says(message);
    }
}
