//! A secret key that is exchanged while the daemon is down, for one that has the same name and check value.

use std::fs;

use hsmux_suite::{PATIENCE, Rig, Run, Setup, until};
use serde_json::{Value, json};

/// Two AES keys, as numbers of 256 bits, that encipher zeros to the same first three bytes.
const ALIKE: [u16; 2] = [5993, 7298];

fn write_key(rig: &Rig, member: &str, number: u16) {
    let mut key = [0; 32];
    key[30..].copy_from_slice(&number.to_be_bytes());
    fs::write(rig.path("aes.bin"), key).unwrap();
    rig.softhsm
        .tool(member)
        .args("--write-object aes.bin --type secrkey --key-type AES:32 --id 07 --label vault")
        .args("--sensitive")
        .dir(&rig.path(""))
        .ok();
}

fn delete_key(rig: &Rig, member: &str) {
    rig.softhsm
        .tool(member)
        .args("--delete-object --type secrkey --id 07")
        .ok();
}

/// Which members serve the key, of each object that the pool knows.
fn serving(rig: &Rig) -> Vec<Value> {
    let status = rig.status();
    let objects = status["pool"]["objects"].as_array().expect("objects");
    objects.iter().map(|o| o["members"].clone()).collect()
}

fn encrypted(rig: &Rig, by: Run, file: &str) -> Vec<u8> {
    fs::write(rig.path("block"), [1; 16]).unwrap();
    by.dir(&rig.path(""))
        .args("--encrypt --id 07 --mechanism AES-ECB --input-file block --output-file")
        .arg(rig.path(file))
        .ok();
    fs::read(rig.path(file)).unwrap()
}

#[test]
fn the_first_members_key_does_not_serve_and_is_told_of() {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    for member in ["hsm1", "hsm2"] {
        write_key(&rig, member, ALIKE[0]);
    }
    rig.start();
    assert_eq!(serving(&rig), [json!(["hsm1", "hsm2"])]);
    rig.stop();

    delete_key(&rig, "hsm1");
    write_key(&rig, "hsm1", ALIKE[1]);
    rig.start();
    assert_eq!(serving(&rig), [json!(["hsm2"])]);
    let old = encrypted(&rig, rig.softhsm.tool("hsm2"), "old");
    assert_ne!(encrypted(&rig, rig.softhsm.tool("hsm1"), "new"), old);
    assert_eq!(encrypted(&rig, rig.pkcs11_tool(""), "served"), old);
    let advice = "say trusted = true in the [[token]] of hsm1";
    for command in ["status", "doctor"] {
        let told = rig.hsmux(command).finish();
        told.says("hsm1").says("it is another key").says(advice);
    }

    // The copy is destroyed there, and the right one is brought.
    delete_key(&rig, "hsm1");
    write_key(&rig, "hsm1", ALIKE[0]);
    rig.hsmux("key verify").ok();
    until("both serve", PATIENCE, || {
        (serving(&rig) == [json!(["hsm1", "hsm2"])]).then_some(())
    });
}

#[test]
fn the_new_key_serves_where_the_administrator_believes_it() {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    for member in ["hsm1", "hsm2"] {
        write_key(&rig, member, ALIKE[0]);
    }
    rig.start();
    rig.stop();
    for member in ["hsm1", "hsm2"] {
        delete_key(&rig, member);
    }
    write_key(&rig, "hsm1", ALIKE[1]);
    rig.start();
    assert_eq!(serving(&rig), [json!([])]);
    rig.config.members[0].more = "trusted = true".into();
    rig.write_config();
    rig.hsmux("reload").ok();
    until("it serves", PATIENCE, || {
        (serving(&rig) == [json!(["hsm1"])]).then_some(())
    });
    // What it answers is recorded: it needs nobody's word any longer.
    rig.stop();
    rig.config.members[0].more = String::new();
    rig.start();
    assert_eq!(serving(&rig), [json!(["hsm1"])]);
}
