//! Every command that takes a key takes a URI, or its parts: --label, --id and --type.

use std::fs;

use hsmux_suite::{Finished, Rig, SOFTHSM, Setup};

/// What the command line answers to wrong arguments.
const USAGE: Option<i32> = Some(2);

/// Three members that hold a pair `web` and another key with a label of its own.
fn rig() -> Rig {
    let mut rig = Rig::empty(Setup::Daemon, 3);
    rig.start();
    rig.hsmux("key generate ec:p256 --label web --id 0a0b").ok();
    rig.hsmux("key generate aes:256 --label other").ok();
    rig
}

#[track_caller]
fn refused(rig: &Rig, line: &str) -> Finished {
    let run = rig.hsmux(line).fails();
    assert_eq!(run.code, USAGE, "{run}");
    run
}

#[test]
fn commands_about_keys() {
    let rig = rig();
    rig.hsmux("key verify --label web")
        .ok()
        .says("every replica");
    rig.hsmux("key clone --label web --type private").ok();
    rig.hsmux("key csr --label web --subject CN=web --out web.csr")
        .ok()
        .says("web.csr");
    rig.hsmux("key reference pkcs11:token=pool --label web")
        .ok()
        .says("BEGIN PKCS#11 PROVIDER URI");
    refused(&rig, "key verify pkcs11:object=web --label web").says("leave one out");
    refused(&rig, "key verify --type nonsense").says("private, public");
    refused(&rig, "key verify --type private;object=web").says("private, public");
    refused(&rig, "key verify --id 0g").says("hexadecimal");
    refused(&rig, "key verify web").says("pkcs11:");
}

#[test]
fn measurements() {
    let rig = rig();
    rig.hsmux("key generate ec:p256 --label mail --id 0c").ok();
    let few = "--count 20 --warm-up 1ms --json";
    for command in ["sign", "scale --tokens 3", "compare --of daemon --rounds 1"] {
        let run = |key: &str| rig.hsmux(&format!("bench {command} {few} {key}"));
        for key in [
            "--label web",
            "--id 0a0b",
            "--label web --id 0a0b --type private",
            "--key pkcs11:type=private --label web",
            "--key pkcs11:object=web",
        ] {
            run(key).ok();
        }
        // Without a choice there are two keys, and a choice has to find one.
        run("")
            .fails()
            .says("2 keys")
            .says("--label, --id or --type");
        run("--label web --id 0c").fails().says("hsmux key list");
        run("--label web --type public")
            .fails()
            .says("hsmux key list");
        refused(
            &rig,
            &format!("bench {command} --key pkcs11:object=web --label web"),
        )
        .says("--label and object=");
        refused(&rig, &format!("bench {command} --id x")).says("hexadecimal");
    }
    let sign = rig.hsmux(&format!("bench sign {few} --label other")).ok();
    assert!(sign.out.contains("\"kind\": \"AES\""), "{sign}");
}

#[test]
fn a_burn_in() {
    let rig = rig();
    rig.hsmux("key generate ec:p256 --label mail --id 0c").ok();
    let burn_in = |state: &str, key: &str| {
        let line = format!("bench burn-in --count 20 --state {state}.json --json");
        rig.hsmux(&line).args(key)
    };
    for (state, key) in [
        ("label", "--label mail"),
        ("id", "--id 0c --type private"),
        ("uri", "--key pkcs11:object=mail"),
    ] {
        let run = burn_in(state, key).ok();
        assert!(run.out.contains("\"label\": \"mail\""), "{run}");
    }
    burn_in("none", "").fails().says("2 keys");
    // The key of virtual cards is made for them.
    for key in ["--label mail", "--id 0c", "--type private"] {
        let run = burn_in("cards", key).args("--vcards 1").fails();
        assert_eq!(run.code, USAGE, "{run}");
        run.says("cannot be used with");
    }
}

/// Three members of which two hold an AES key, and a key that may leave the first.
#[test]
fn a_wrapping_key() {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    fs::write(rig.path("kek"), [9; 32]).unwrap();
    let bare = |token: &str, line: &str| {
        let tool = rig.softhsm.tool(token).dir(&rig.path(""));
        tool.args(line).ok()
    };
    for token in ["hsm1", "hsm2"] {
        let key = "--type secrkey --key-type AES:32 --id 0b --label kek --sensitive --usage-wrap";
        bare(token, &format!("--write-object kek {key}"));
    }
    for (id, label) in [("01", "one"), ("02", "two"), ("03", "three")] {
        let key = format!("--id {id} --label {label} --sensitive --extractable");
        bare(
            "hsm1",
            &format!("--keypairgen --key-type EC:prime256v1 {key}"),
        );
    }
    rig.start();
    let clone = |key: &str, wrapping: &str| {
        rig.hsmux(&format!(
            "key clone --label {key} --from hsm1 --to hsm2 {wrapping}"
        ))
    };
    clone("one", "--wrapping-label absent")
        .fails()
        .says("absent")
        .says("hsmux key list");
    for wrapping in [
        "--wrapping-key pkcs11:object=kek --wrapping-label kek",
        "--wrapping-key pkcs11:id=%0b --wrapping-id 0b",
    ] {
        let run = clone("one", wrapping).fails();
        assert_eq!(run.code, USAGE, "{run}");
        run.says("leave one out");
    }
    clone("one", "--wrapping-label kek").ok().says("copied");
    clone("two", "--wrapping-id 0b").ok().says("copied");
    clone(
        "three",
        "--wrapping-key pkcs11:type=secret-key --wrapping-label kek --wrapping-id 0b",
    )
    .ok()
    .says("copied");
    for token in ["hsm1", "hsm2"] {
        let objects = rig.softhsm.tool(token).args("-O").ok();
        objects.never_says("hsmux-transport");
    }
}

#[test]
fn an_authority() {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    for (label, id) in [("ca", "07"), ("other", "08")] {
        let key = format!("--keypairgen --key-type EC:prime256v1 --label {label} --id {id}");
        rig.softhsm.tool("hsm1").args(&key).ok();
    }
    let module = format!("--module {SOFTHSM} --pin file:hsm1.pin");
    let init = |folder: &str, key: &str| rig.hsmux(&format!("node ca init --ca {folder} {key}"));
    init(
        "label",
        &format!("--key pkcs11:token=hsm1 --label ca {module}"),
    )
    .ok()
    .says("in the token");
    init(
        "id",
        &format!("--key pkcs11:token=hsm1 --id 07 --type private {module}"),
    )
    .ok()
    .says("in the token");
    for folder in ["label", "id"] {
        let enroll = format!("node enroll web1 --ca {folder} --pin file:hsm1.pin");
        rig.hsmux(&enroll)
            .args("--out")
            .arg(folder.to_owned() + "-web1")
            .ok();
    }
    refused(&rig, &format!("node ca init --ca none {module}")).says("--label");
    refused(
        &rig,
        "node ca init --ca none --key pkcs11:object=ca --label ca",
    )
    .says("leave one out");
    assert!(!rig.path("none").exists());

    rig.start();
    rig.hsmux("node ca init --ca pool --label ca")
        .ok()
        .says("certificates of any name");
    rig.hsmux("node enroll web1 --ca pool --out pool-web1").ok();
}
