//! The commands about certificates, and mistakes in the configuration of a node.

use std::fs;

use hsmux_suite::{Rig, Run, SOFTHSM, Setup};

use crate::pair::FILES;

#[test]
fn certificates_are_what_other_programs_take_them_for() {
    let rig = Rig::empty(Setup::Daemon, 1);
    rig.hsmux("node ca init --name cluster").ok();
    rig.hsmux("node enroll web1 --address 10.0.0.1 --address web1.example")
        .ok();
    let openssl = |line: &str| openssl(&rig, line).ok();
    openssl("verify -x509_strict -purpose sslserver -CAfile ca/ca.pem web1/node.pem");
    openssl("verify -x509_strict -purpose sslclient -CAfile ca/ca.pem web1/node.pem");
    openssl("x509 -in web1/node.pem -noout -text")
        .says("DNS:web1, IP Address:10.0.0.1, DNS:web1.example")
        .says("CA:FALSE");
    rig.hsmux("node revoke web1").ok().says("revoked.pem");
    let checked = Run::new("openssl")
        .dir(&rig.path(""))
        .args("verify -crl_check -CAfile ca/ca.pem -CRLfile ca/revoked.pem web1/node.pem")
        .finish();
    checked.says("certificate revoked");
    rig.hsmux("node list").ok().says("web1");
    rig.hsmux("node revoke web2")
        .fails()
        .says("hsmux node list");
    rig.hsmux("node enroll web1")
        .fails()
        .says("is there already");
    rig.hsmux("node enroll web1 --ca nowhere --out x")
        .fails()
        .says("hsmux node ca init");
}

/// `openssl` with a line of arguments, in the rig's folder.
fn openssl(rig: &Rig, line: &str) -> Run {
    Run::new("openssl").dir(&rig.path("")).args(line)
}

#[test]
fn a_host_makes_its_own_key_and_a_request() {
    let rig = Rig::empty(Setup::Daemon, 1);
    rig.hsmux("node ca init").ok();
    rig.hsmux("node request web1").ok().says("node.csr");
    openssl(&rig, "req -in web1/node.csr -verify -noout -subject")
        .ok()
        .says("web1");
    rig.hsmux("node enroll web2 --csr web1/node.csr")
        .fails()
        .says("is of \"web1\"");
    rig.hsmux("node enroll web1 --csr web1/node.csr --address web1.example --out signed")
        .ok();
    let made = rig.path("signed");
    assert!(made.join("node.pem").exists() && !made.join("node.key").exists());
    openssl(
        &rig,
        "verify -x509_strict -purpose sslserver -CAfile ca/ca.pem signed/node.pem",
    )
    .ok();
    openssl(&rig, "x509 -in signed/node.pem -noout -text")
        .ok()
        .says("DNS:web1, DNS:web1.example");
    let certified = openssl(&rig, "x509 -in signed/node.pem -noout -pubkey").ok();
    let own = openssl(&rig, "pkey -in web1/node.key -pubout").ok();
    assert_eq!(certified.out, own.out);
    // Requests by another program, with keys of other kinds.
    for (name, kind) in [
        ("rsa", "rsa:2048"),
        ("p384", "ec -pkeyopt ec_paramgen_curve:P-384"),
        ("edwards", "ed25519"),
    ] {
        openssl(
            &rig,
            &format!("req -new -nodes -subj /O=Example/CN={name} -newkey {kind}"),
        )
        .args(&format!("-keyout {name}.key -out {name}.csr"))
        .ok();
        rig.hsmux(&format!("node enroll {name} --csr {name}.csr"))
            .ok();
        openssl(&rig, &format!("verify -CAfile ca/ca.pem {name}/node.pem")).ok();
    }
    openssl(
        &rig,
        "req -new -nodes -subj /CN=odd -newkey ec -pkeyopt ec_paramgen_curve:secp256k1",
    )
    .args("-keyout odd.key -out odd.csr")
    .ok();
    rig.hsmux("node enroll odd --csr odd.csr")
        .fails()
        .says("none of P-256");
    rig.hsmux("node enroll x --csr hsmux.toml")
        .fails()
        .says("hsmux node request");
    rig.hsmux("node enroll x --csr none.csr")
        .fails()
        .says("none.csr");
}

#[test]
fn the_authoritys_key_in_a_token() {
    let rig = Rig::empty(Setup::Daemon, 1);
    for (name, kind, id) in [
        ("p256", "EC:prime256v1", "07"),
        ("p384", "EC:secp384r1", "08"),
        ("rsa", "RSA:2048", "09"),
    ] {
        let generate = format!("--keypairgen --key-type {kind} --label {name} --id {id}");
        rig.softhsm.tool("hsm1").args(&generate).ok();
        let uri = format!("pkcs11:token=hsm1;object={name}");
        rig.hsmux(&format!("node ca init --ca {name} --key {uri}"))
            .args(&format!("--module {SOFTHSM} --pin file:hsm1.pin"))
            .ok()
            .says("in the token")
            .never_says("certificates of any name");
        assert!(!rig.path(name).join("ca.key").exists());
        let node = |line: &str| rig.hsmux(&format!("node {line} --ca {name} --pin file:hsm1.pin"));
        node(&format!("enroll web1 --out {name}-web1")).ok();
        let verify = |more: &str| {
            let files = format!("-CAfile {name}/ca.pem {name}-web1/node.pem");
            openssl(&rig, &format!("verify -x509_strict {more} {files}"))
        };
        verify("").ok();
        node("revoke web1").ok();
        verify(&format!("-crl_check -CRLfile {name}/revoked.pem"))
            .finish()
            .says("certificate revoked");
    }
    // What signs nothing needs no token; a wrong PIN is told, and not tried again.
    rig.hsmux("node list --ca p256").ok().says("web1");
    rig.write_pin("wrong", "wrong-pin");
    rig.hsmux("node revoke web1 --ca p256 --pin file:wrong.pin")
        .fails()
        .says("CKR_PIN_INCORRECT");
    // Another key of that name is not the authority's.
    for class in ["privkey", "pubkey"] {
        let delete = format!("--delete-object --label p256 --type {class}");
        rig.softhsm.tool("hsm1").args(&delete).ok();
    }
    let enroll = "node enroll web2 --ca p256 --pin file:hsm1.pin";
    rig.hsmux(enroll).fails().says("no such private key");
    rig.softhsm
        .tool("hsm1")
        .args("--keypairgen --key-type EC:prime256v1 --label p256 --id 07")
        .ok();
    rig.hsmux(enroll).fails().says("another key");
    assert!(!rig.path("web2").exists());
}

#[test]
fn the_authoritys_key_in_the_pool() {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.start();
    rig.hsmux("key generate ec:p256 --label ca").ok();
    let made = rig.hsmux("node ca init --key pkcs11:object=ca").ok();
    assert!(made.err.contains("certificates of any name"), "{made}");
    rig.hsmux("token park hsm1 --force").ok();
    rig.hsmux("node enroll web1").ok();
    openssl(&rig, "verify -CAfile ca/ca.pem web1/node.pem").ok();
    rig.stop();
    rig.hsmux("node revoke web1").fails();
}

#[test]
fn mistakes_are_told_with_their_lines() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let good = rig.config.to_string();
    let lines = good.lines().count();
    let check = |more: &str| {
        fs::write(rig.path("hsmux.toml"), format!("{good}{more}\n")).expect("write a file");
        rig.hsmux("config check").finish()
    };
    let node = format!("[node]\nlisten = [\"127.0.0.1:7443\"]\n{FILES}");
    for (more, line, told) in [
        ("[[peer]]\nname = \"web1\"", 1, "add [node]"),
        ("[[token]]\nnode = \"web2:7443\"", 2, "needs [node]"),
        ("[node]\nlisten = [\"all\"]", 2, "is not an address"),
        ("[node]\nlisten = [\"127.0.0.1:1\"]", 1, "needs certificate"),
        (
            &format!("[node]\n{FILES}"),
            1,
            "neither listens nor is used",
        ),
        (&format!("{node}\n[[peer]]"), 7, "needs name"),
        (
            &format!("{node}\n[[peer]]\nname = \"a b\""),
            8,
            "is no name of a node",
        ),
        (
            &format!("{node}\n[[peer]]\nname = \"a\"\nkeyz = []"),
            9,
            "did you mean \"keys\"?",
        ),
        (
            &format!("{node}\n[[token]]\nnode = \"web2\""),
            8,
            "is not HOST:PORT",
        ),
        (
            &format!("{node}\n[[token]]\nnode = \"10.0.0.2:1\""),
            8,
            "add name =",
        ),
        (
            &format!("{node}\n[[token]]\nnode = \"web2:1\"\nworkers = 2"),
            9,
            "workers is for a token of a module",
        ),
        (&node, 3, "node.pem"),
    ] {
        let checked = check(more);
        assert_ne!(checked.code, Some(0), "{more}");
        checked
            .says(told)
            .says(&format!("hsmux.toml:{}:", lines + line));
    }
    rig.hsmux("node ca init").ok();
    rig.hsmux("node enroll web1 --out node").ok();
    let checked = check(&format!("{node}\n[[peer]]\nname = \"web2\""));
    assert_eq!(checked.code, Some(0), "{}", checked.all());
    rig.hsmux("node --config none.toml").fails();
}
