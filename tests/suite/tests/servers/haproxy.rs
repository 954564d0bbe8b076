//! Debian's haproxy, which takes keys from PEM files only: those have references, which the provider reads.

use std::fs;

use hsmux_suite::{Finished, Rig};
use rustix::process::Signal;

use crate::way::{Login, Way, write_file};
use crate::web::{Kind, keeps_serving, open_to_others, with_certificates};

/// One process with two threads; the one above it loads the keys, and forks.
const HAPROXY: Kind = Kind {
    workers: 1,
    way: Way::Provider,
    login: Login::Pin,
    by_name: true,
    configuration,
    command: &["sh", "-c", "exec haproxy -W -f server.conf > access.log"],
    reload: Signal::USR2,
};

/// The old process hands its sockets to the new one over the socket for statistics.
fn configuration(port: u16, [rsa, ec]: [&str; 2]) -> String {
    format!(
        r#"global
    nbthread 2
    user www-data
    group www-data
    log stdout format raw local0
    stats socket unix@stats.sock expose-fd listeners
defaults
    mode http
    log global
    log-format %pid
    timeout client 60s
    timeout server 60s
    timeout connect 60s
frontend tls
    bind 127.0.0.1:{port} ssl crt {ec} crt {rsa} ssl-min-ver TLSv1.2
    http-request return status 200 content-type text/plain string "hello, world\n"
"#
    )
}

#[test]
fn keeps_serving_whatever_happens() {
    keeps_serving(&HAPROXY);
}

/// A daemon that runs or not, and a folder for a server.
fn rig() -> Rig {
    let rig = open_to_others(with_certificates(), Login::Peer);
    fs::create_dir(rig.path("server")).unwrap();
    Way::Provider.write_configuration(&rig);
    rig
}

/// `haproxy -c` with one PEM file, `server/web.pem`.
fn check(rig: &Rig) -> Finished {
    fs::write(
        rig.path("server/haproxy.cfg"),
        configuration(8443, ["web.pem"; 2]),
    )
    .unwrap();
    rig.run("haproxy")
        .args("-c -f haproxy.cfg")
        .dir(&rig.path("server"))
        .env("HSMUX_CONFIG", "")
        .env("OPENSSL_CONF", rig.path("openssl.cnf"))
        .finish()
}

#[test]
fn a_key_that_it_cannot_serve_with_is_refused_when_it_starts() {
    const EC: &str = "pkcs11:token=web;object=ec";
    let mut rig = rig();
    write_file(&rig, "server/web.pem", "ec", EC);
    let away = check(&rig);
    assert_ne!(away.code, Some(0));
    away.says("cannot connect to").says("hsmux serve");
    rig.start();
    assert_eq!(check(&rig).code, Some(0));
    for (certificate, key, reason) in [
        (
            "rsa",
            EC,
            "inconsistencies between private key and certificate",
        ),
        (
            "ec",
            "pkcs11:token=web;object=rsa",
            "inconsistencies between private key and certificate",
        ),
        (
            "ec",
            "pkcs11:token=web;object=absent",
            "object=absent;type=private: no such private key in the pool",
        ),
        (
            "ec",
            "pkcs11:token=other;object=ec",
            "the pool is another token, \"web\"",
        ),
    ] {
        write_file(&rig, "server/web.pem", certificate, key);
        let refused = check(&rig);
        assert_ne!(refused.code, Some(0), "{certificate}, {key}");
        refused.says(reason);
    }
}

/// Without a file of OpenSSL's: the module is where OpenSSL looks for providers, and the socket is in the environment.
#[test]
fn the_provider_is_named_in_its_own_configuration() {
    let mut rig = rig();
    rig.start();
    write_file(&rig, "server/web.pem", "ec", "pkcs11:object=ec");
    std::os::unix::fs::symlink(rig.module(), rig.path("hsmux.so")).unwrap();
    let path = rig.path("").display().to_string();
    let own = format!(
        "global\n    ssl-provider-path {path}\n    ssl-provider default\n    ssl-provider hsmux\n"
    );
    let text = configuration(8443, ["web.pem"; 2]).replacen("global\n", &own, 1);
    fs::write(rig.path("server/haproxy.cfg"), text).unwrap();
    let run = || {
        rig.run("haproxy")
            .args("-c -f haproxy.cfg")
            .dir(&rig.path("server"))
    };
    run().env("HSMUX_SOCKET", rig.path("web.sock")).ok();
    run()
        .env("HSMUX_SOCKET", rig.path("none.sock"))
        .fails()
        .says("none.sock");
}
