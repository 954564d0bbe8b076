//! `hsmux key list` at every width, and what commands say of keys that are easily taken for another.

use hsmux_suite::{Rig, Setup, Terminal};

/// An id of 32 bytes.
const LONG: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn rig() -> Rig {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.start();
    rig
}

/// A certificate `other.crt` of a key that no token has.
fn certify_another(rig: &Rig) {
    rig.run("openssl")
        .args("req -x509 -newkey rsa:2048 -nodes -keyout other.key -subj /CN=other -out other.crt")
        .ok();
}

#[test]
fn a_long_id_is_whole_at_every_width() {
    let rig = rig();
    rig.hsmux(&format!("key generate aes:256 --label backup --id {LONG}"))
        .ok();
    let list = || rig.hsmux("key list");
    let at_80 = list().ok().out;
    let widest = at_80.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{widest:?} columns\n{at_80}");
    let words: Vec<_> = at_80.split_whitespace().collect();
    for word in ["backup", "secret", "key", "hsm1", "hsm2", LONG] {
        assert!(words.contains(&word), "{word}\n{at_80}");
    }

    let row = format!("backup  secret key  AES   {LONG}  hsm1 hsm2");
    list().env("COLUMNS", "200").ok().says(&row);
    let screen = |run, columns| Terminal::with_columns(run, columns).ok();
    assert!(screen(list(), 200).contains(&row));
    assert!(!screen(list(), 80).contains(&row));
    // COLUMNS is the user's own word.
    assert!(screen(list().env("COLUMNS", "200"), 80).contains(&row));
}

#[test]
fn a_certificate_of_no_key_says_so_and_has_a_short_id() {
    let rig = rig();
    certify_another(&rig);
    rig.hsmux("key cert import other.crt")
        .ok()
        .says("note: no key in the pool belongs to this certificate");
    let rows = rig.hsmux("key list --json").ok().out;
    let rows: serde_json::Value = serde_json::from_str(&rows).expect("JSON");
    assert_eq!(rows[0]["class"], "certificate");
    assert_eq!(rows[0]["id"].as_str().map(str::len), Some(40), "{rows}");

    rig.hsmux("key generate ec:p256 --label web").ok();
    rig.hsmux("key csr --label web --type private --subject CN=web --out web.csr")
        .ok();
    rig.certify("web.csr", "web.crt");
    rig.hsmux("key cert import web.crt").ok().never_says("note");
    rig.hsmux("key delete --label web --type cert --yes").ok();

    // Earlier versions gave it 32 bytes if it came before its key: programs do not find it by the key's id.
    let long = "ab".repeat(32);
    rig.hsmux(&format!("key cert import web.crt --id {long}"))
        .ok();
    let delete = format!("key delete --id {long} --type cert");
    rig.hsmux("key cert import web.crt")
        .fails()
        .says("with another id")
        .says(&format!("hsmux {delete}"));
    rig.hsmux(&format!("{delete} --yes")).ok();
    rig.hsmux("key cert import web.crt").ok();
}

#[test]
fn a_second_key_of_a_label_is_noted() {
    let rig = rig();
    rig.hsmux("key generate ec:p256 --label web --id 0a")
        .ok()
        .never_says("note");
    let second = rig.hsmux("key generate ec:p256 --label web --id 0b").ok();
    assert_eq!(
        second.err,
        "note: another key has the label \"web\": private key \"web\", id 0a. To name the new one alone: --id 0b\n"
    );
    rig.hsmux("key generate aes:256 --label web --id 0c")
        .ok()
        .says("2 other keys have the label \"web\"")
        .says("--id 0c");
    rig.hsmux("key list").ok().never_says("note");
}
