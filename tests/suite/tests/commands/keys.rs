//! `hsmux key`.

use std::fs;

use hsmux_suite::{PATIENCE, Rig, Run, Setup, Terminal, until};
use serde_json::Value;

/// A pool of three tokens without keys.
fn empty() -> Rig {
    let mut rig = Rig::empty(Setup::Daemon, 3);
    rig.start();
    rig
}

/// The members that serve an object of this label and class.
fn members(rig: &Rig, label: &str, class: &str) -> Vec<String> {
    let list = rig.hsmux("key list --json").ok();
    let rows: Value = serde_json::from_str(&list.out).expect("JSON from hsmux key list");
    let found = rows
        .as_array()
        .expect("rows")
        .iter()
        .find(|row| row["label"] == label && row["class"] == class);
    let members = found.map_or(Vec::new(), |row| {
        row["members"].as_array().expect("members").clone()
    });
    members
        .iter()
        .map(|member| member.as_str().expect("a name").to_owned())
        .collect()
}

/// `pkcs11-tool` on one token, past the pool.
fn bare(rig: &Rig, label: &str, line: &str) -> Run {
    rig.softhsm.tool(label).dir(&rig.path("")).args(line)
}

#[test]
fn generated_keys_are_on_every_member_and_cannot_leave() {
    let rig = empty();
    for (spec, label, class) in [
        ("rsa:2048", "mail", "private key"),
        ("ec:p256", "web", "private key"),
        ("aes:256", "backup", "secret key"),
    ] {
        rig.hsmux(&format!("key generate {spec} --label {label}"))
            .ok();
        assert_eq!(
            members(&rig, label, class),
            ["hsm1", "hsm2", "hsm3"],
            "{spec}"
        );
    }
    // SoftHSM's defaults allow every use.
    let objects = rig.pkcs11_tool("--list-objects").ok();
    objects
        .says("Usage:      encrypt, decrypt")
        .says("Usage:      decrypt, sign")
        .never_says("wrap");
    rig.hsmux("key verify")
        .ok()
        .says("every replica has proved itself");
    for token in ["hsm1", "hsm2", "hsm3"] {
        let objects = bare(&rig, token, "-O").ok();
        for label in ["mail", "web", "backup"] {
            objects.says(label);
        }
        // No key is left on its way, and none but transport keys' public halves may leave.
        none_may_leave(&rig, token);
    }
}

/// Sees that no private key of a token is extractable.
fn none_may_leave(rig: &Rig, token: &str) {
    let keys = bare(rig, token, "-O --type privkey").ok().out;
    let leave = keys.lines().any(|line| {
        line.replace("never extractable", "")
            .contains("extractable")
    });
    assert!(!leave, "{keys}");
}

#[test]
fn a_key_pair_works_on_each_member_alone() {
    let rig = empty();
    rig.hsmux("key generate ec:p256 --label web --id 0a").ok();
    fs::write(rig.path("digest"), [7; 32]).unwrap();
    rig.public_key("id=%0a", "public.pem");
    for token in ["hsm1", "hsm2", "hsm3"] {
        bare(
            &rig,
            token,
            "--sign -m ECDSA -f openssl --id 0a -i digest -o signature",
        )
        .ok();
        rig.run("openssl")
            .args("pkeyutl -verify -pubin -inkey public.pem -in digest -sigfile signature")
            .ok();
    }
}

#[test]
fn extractable_keys_are_cloned_and_others_refused_by_name() {
    let mut rig = Rig::empty(Setup::Daemon, 3);
    bare(
        &rig,
        "hsm1",
        "--keypairgen --key-type rsa:2048 --id 01 --label old --sensitive --extractable",
    )
    .ok();
    bare(
        &rig,
        "hsm1",
        "--keypairgen --key-type EC:prime256v1 --id 02 --label fixed",
    )
    .ok();
    bare(
        &rig,
        "hsm1",
        "--keygen --key-type AES:32 --id 03 --label data --sensitive --extractable",
    )
    .ok();
    rig.start();
    assert_eq!(members(&rig, "old", "private key"), ["hsm1"]);
    rig.hsmux("key clone")
        .fails()
        .says("fixed")
        .says("cannot leave hsm1")
        .says("generate a new one through");
    assert_eq!(
        members(&rig, "old", "private key"),
        ["hsm1", "hsm2", "hsm3"]
    );
    assert_eq!(
        members(&rig, "data", "secret key"),
        ["hsm1", "hsm2", "hsm3"]
    );
    assert_eq!(members(&rig, "fixed", "private key"), ["hsm1"]);
    rig.hsmux("doctor")
        .fails()
        .says("fixed")
        .says("hsm1 alone serves it");
    // Again: nothing is done twice.
    rig.hsmux("key clone pkcs11:object=old;type=private").ok();
}

/// Two of three tokens hold an AES key: under it a key gets to the second, where it proves itself, and nothing
/// to the third. No token has got a transport key by that.
#[test]
fn keys_are_cloned_under_a_key_that_both_tokens_hold() {
    let mut rig = Rig::empty(Setup::Daemon, 3);
    fs::write(rig.path("kek"), [9; 32]).unwrap();
    for token in ["hsm1", "hsm2"] {
        bare(
            &rig,
            token,
            "--write-object kek --type secrkey --key-type AES:32 --id 0b --label kek --sensitive --usage-wrap",
        )
        .ok();
    }
    bare(
        &rig,
        "hsm1",
        "--keypairgen --key-type rsa:2048 --id 01 --label old --sensitive --extractable",
    )
    .ok();
    rig.start();
    assert_eq!(members(&rig, "kek", "secret key"), ["hsm1", "hsm2"]);

    let clone = |to: &str, key: &str| {
        rig.hsmux(&format!(
            "key clone pkcs11:object=old --from hsm1 --to {to} --wrapping-key {key}"
        ))
    };
    clone("hsm2", "pkcs11:object=absent").fails().says("absent");
    clone("hsm2", "pkcs11:object=old")
        .fails()
        .says("no secret key");
    clone("hsm3", "pkcs11:object=kek")
        .fails()
        .says("hsm3 does not hold the wrapping key");
    assert_eq!(members(&rig, "old", "public key"), ["hsm1"]);

    clone("hsm2", "pkcs11:object=kek").ok().says("copied");
    assert_eq!(members(&rig, "old", "private key"), ["hsm1", "hsm2"]);
    clone("hsm2", "pkcs11:object=kek").ok().says("proved");
    none_may_leave(&rig, "hsm2");
    for token in ["hsm1", "hsm2", "hsm3"] {
        bare(&rig, token, "-O").ok().never_says("hsmux-transport");
    }
}

/// A member that was away when a key was deleted does not bring it back.
#[test]
fn a_deleted_key_does_not_rise_again() {
    let rig = empty();
    rig.hsmux("key generate ec:p256 --label web").ok();
    rig.hsmux("token park hsm3 --force").ok();
    rig.hsmux("key delete --label web --all --yes --confirm web")
        .ok();
    bare(&rig, "hsm3", "-O").ok().says("web");
    rig.hsmux("token resume hsm3").ok();
    rig.wait_for_members(3);
    until("the key is gone", PATIENCE, || {
        // It may go while the tool reads it.
        let list = bare(&rig, "hsm3", "-O").finish();
        (list.code == Some(0) && !list.out.contains("web")).then_some(())
    });
    until("nobody shows it", PATIENCE, || {
        members(&rig, "web", "private key").is_empty().then_some(())
    });
}

/// A member that was away when a key was made has it after its return.
#[test]
fn a_member_catches_up() {
    let rig = empty();
    // With the first key every member is enrolled: it has a transport key that the others know.
    rig.hsmux("key generate aes:256 --label first").ok();
    rig.hsmux("token park hsm3 --force").ok();
    rig.hsmux("key generate ec:p256 --label web").ok();
    rig.hsmux("token resume hsm3").ok();
    until("it has the key", PATIENCE, || {
        (members(&rig, "web", "private key").len() == 3).then_some(())
    });
}

#[test]
fn too_few_members_make_no_key() {
    let mut rig = Rig::empty(Setup::Daemon, 3);
    rig.config.pool.push_str("\nreplicas = 3");
    rig.start();
    rig.hsmux("token park hsm3 --force").ok();
    rig.hsmux("key generate ec:p256 --label web").fails();
    for token in ["hsm1", "hsm2"] {
        bare(&rig, token, "-O --type privkey")
            .ok()
            .never_says("web");
    }
    assert!(members(&rig, "web", "private key").is_empty());
}

#[test]
fn a_request_is_signed_and_its_certificate_imported() {
    let rig = empty();
    rig.hsmux("key generate ec:p256 --label web").ok();
    rig.hsmux("key csr pkcs11:object=web;type=private --subject CN=www.test,O=Test --name www.test --out web.csr")
        .ok()
        .says("wrote web.csr")
        .says("CN=www.test");
    rig.run("openssl")
        .args("req -in web.csr -verify -noout -text")
        .ok()
        .says("verify OK")
        .says("DNS:www.test");
    rig.certify("web.csr", "web.crt");
    rig.hsmux("key cert import web.crt").ok();
    rig.hsmux("key cert import web.crt")
        .fails()
        .says("in the pool already")
        .says("hsmux key clone --id");
    rig.run("openssl")
        .args("x509 -req -in web.csr -CA ca.crt -CAkey ca.key -set_serial 7 -out again.crt")
        .ok();
    let second = rig.hsmux("key cert import again.crt").fails();
    second
        .says("another certificate")
        .says("hsmux key delete --id");
    assert_eq!(
        members(&rig, "web", "certificate"),
        ["hsm1", "hsm2", "hsm3"]
    );
    bare(&rig, "hsm2", "-O --type cert")
        .ok()
        .says("CN=www.test");
}

/// What it names may be another host's, or not made yet.
#[test]
fn a_reference_is_written_without_a_daemon() {
    let rig = Rig::prepare(Setup::Daemon, 0);
    rig.hsmux("key reference pkcs11:token=web;object=a --out a.pem")
        .ok();
    rig.run("openssl")
        .args("asn1parse -in a.pem")
        .ok()
        .says("pkcs11:token=web;object=a;type=private");
    let printed = rig.hsmux("key reference pkcs11:token=web;object=a").ok();
    assert_eq!(printed.out, fs::read_to_string(rig.path("a.pem")).unwrap());
    rig.hsmux("key reference pkcs11:object=a;type=cert")
        .fails()
        .says("no private key");
    rig.hsmux("key reference pkcs11:token=web")
        .fails()
        .says("names no key");
    rig.hsmux("key reference a").fails().says("pkcs11:");
}

#[test]
fn mistakes_are_answered_in_words() {
    let rig = empty();
    rig.hsmux("key generate rsa:17 --label x")
        .fails()
        .says("rsa");
    rig.hsmux("key generate ec:p999 --label x")
        .fails()
        .says("p256");
    rig.hsmux("key delete pkcs11:object=absent --yes")
        .fails()
        .says("absent");
    rig.hsmux("key csr pkcs11:object=absent --subject CN=x")
        .fails()
        .says("absent");
    rig.hsmux("key delete not-a-uri --yes")
        .fails()
        .says("pkcs11:");
}

/// The longest ids that programs make by themselves are SHA-1 hashes. In a terminal of 80 columns they are to be
/// copied, in one piece.
#[test]
fn an_id_of_twenty_bytes_is_printed_whole() {
    const ID: &str = "00112233445566778899aabbccddeeff01234567";
    let rig = empty();
    rig.hsmux(&format!("key generate ec:p256 --label web --id {ID}"))
        .ok();
    let label = "a label of many words, which leaves the other columns of the table little room";
    rig.hsmux(&format!(
        "key generate aes:256 --id {}",
        ID.replace("00", "ff")
    ))
    .arg("--label")
    .arg(label)
    .ok();
    let screen = Terminal::start(rig.hsmux("key list")).ok();
    // Past the line that is wiped away.
    let at_a_terminal = screen.rsplit("\u{1b}[2K").next().unwrap().to_owned();
    for list in [rig.hsmux("key list").ok().out, at_a_terminal] {
        let words: Vec<_> = list.split_whitespace().collect();
        let times = |id: &str| words.iter().filter(|word| **word == id).count();
        assert_eq!(times(ID), 2, "{list}");
        assert_eq!(times(&ID.replace("00", "ff")), 1, "{list}");
        let widest = list.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{widest:?} columns\n{list}");
    }
    // As it is printed, it is an argument.
    rig.hsmux(&format!("key verify --id {ID}"))
        .ok()
        .says("every replica");
}

/// Nobody could name one of them alone.
#[test]
fn an_id_names_one_key() {
    let rig = empty();
    rig.hsmux("key generate ec:p256 --label web --id 0a").ok();
    for (kind, label) in [("ec:p256", "web"), ("aes:256", "other")] {
        rig.hsmux(&format!("key generate {kind} --label {label} --id 0a"))
            .fails()
            .says("\"web\" has the id 0a already")
            .says("hsmux key delete --id 0a");
    }
    assert_eq!(members(&rig, "other", "secret key"), [""; 0]);
    rig.hsmux("key csr --id 0a --subject CN=x").ok();
    // A label is for many, and who gives no id gets one.
    rig.hsmux("key generate ec:p256 --label web").ok();
    rig.hsmux("key delete --id 0a --all --yes --confirm web")
        .ok();
    rig.hsmux("key generate aes:256 --label other --id 0a").ok();
}
