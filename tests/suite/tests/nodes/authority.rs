//! The commands about certificates, and mistakes in the configuration of a node.

use std::fs;

use hsmux_suite::{Rig, Run, Setup};

use crate::pair::FILES;

#[test]
fn certificates_are_what_other_programs_take_them_for() {
    let rig = Rig::empty(Setup::Daemon, 1);
    rig.hsmux("node ca init --name cluster").ok();
    rig.hsmux("node enroll web1 --address 10.0.0.1 --address web1.example")
        .ok();
    let openssl = |line: &str| Run::new("openssl").dir(&rig.path("")).args(line).ok();
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
