//! DES, DSA, DH and HMAC with MD5, where members have them.

use hsmux_suite::Setup;
use serde_json::Value;

#[test]
fn bare() {
    works(Setup::Bare, 1);
}

#[test]
fn a_pool_of_one() {
    works(Setup::Daemon, 1);
}

#[test]
fn a_pool_of_three() {
    works(Setup::Daemon, 3);
}

#[test]
fn embedded() {
    works(Setup::Embedded, 1);
}

fn works(setup: Setup, members: usize) {
    let run = crate::in_turns("legacy.py", setup, members);
    for name in ["dsa", "imported", "dh", "des2", "des3", "md5"] {
        for kept in ["session", "token"] {
            run.says(&format!("{name} {kept}: good"));
        }
    }
    // OpenSSL 3 of Debian has single DES in a provider that is not loaded: SoftHSM makes such keys and cannot use them.
    run.says("des: made");
}

/// hsmux cannot prove a copy of these.
#[test]
fn dsa_and_dh_keys_have_one_copy() {
    let rig = crate::serving_in_turns(Setup::Daemon, 3);
    crate::run(&rig, "legacy.py");
    let rows = rig.hsmux("key list --json").ok().out;
    let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
    let copies = |label: &str| -> Vec<usize> {
        let named = rows.iter().filter(|row| row["label"] == label);
        let members = |row: &Value| row["members"].as_array().unwrap().len();
        named.map(members).collect()
    };
    for label in ["dsa", "dh 0", "dh 1"] {
        assert_eq!(copies(label), [1, 1], "{label}: {rows:#?}");
    }
    assert_eq!(copies("des3"), [3], "{rows:#?}");
}
