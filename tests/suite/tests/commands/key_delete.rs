//! Deleting keys: nothing goes that the administrator did not name, see and confirm.

use hsmux_suite::{Rig, Setup, Terminal};

/// Three members that hold a pair `web` and another key with a label of its own.
fn rig() -> Rig {
    let mut rig = Rig::empty(Setup::Daemon, 3);
    rig.start();
    rig.hsmux("key generate ec:p256 --label web --id 0a0b").ok();
    rig.hsmux("key generate aes:256 --label other").ok();
    rig
}

/// Labels and classes of what the pool has, sorted.
fn objects(rig: &Rig) -> Vec<String> {
    let list: serde_json::Value =
        serde_json::from_str(&rig.hsmux("key list --json").ok().out).expect("JSON");
    let rows = list.as_array().expect("rows").iter();
    let mut names: Vec<_> = rows
        .map(|row| {
            let text = |field: &str| row[field].as_str().expect("text").to_owned();
            format!("{} {}", text("label"), text("class"))
        })
        .collect();
    names.sort();
    names
}

const ALL: [&str; 3] = ["other secret key", "web private key", "web public key"];

#[test]
fn what_is_not_confirmed_is_not_deleted() {
    let rig = rig();
    // The shell has cut the URI at its semicolon.
    rig.hsmux("key delete --yes pkcs11:object=web")
        .fails()
        .says("--all")
        .says("nothing was deleted");
    rig.hsmux("key delete --yes --label web --type private")
        .fails()
        .says("--confirm web");
    rig.hsmux("key delete --yes --label web --all --confirm other")
        .fails()
        .says("--confirm web");
    rig.hsmux("key delete --label web --type public")
        .fails()
        .says("--yes");
    rig.hsmux("key delete --yes --all").fails().says("--label");
    assert_eq!(objects(&rig), ALL);
}

#[test]
fn a_dry_run_lists_class_label_id_and_members() {
    let rig = rig();
    rig.hsmux("key delete --label web --all --yes --confirm web --dry-run")
        .ok()
        .says("private key \"web\", id 0a0b, on hsm1 hsm2 hsm3")
        .says("public key \"web\", id 0a0b, on hsm1 hsm2 hsm3")
        .says("nothing was deleted");
    assert_eq!(objects(&rig), ALL);
}

#[test]
fn what_is_confirmed_is_deleted_from_all_members() {
    let rig = rig();
    rig.hsmux("key delete --id 0a0b --all --yes --confirm web")
        .ok()
        .says("deleted private key \"web\", id 0a0b\n");
    assert_eq!(objects(&rig), ALL[..1]);
    for token in ["hsm1", "hsm2", "hsm3"] {
        rig.softhsm.tool(token).args("-O").ok().never_says("web");
    }
}

#[test]
fn the_label_is_asked_for_at_a_terminal() {
    let rig = rig();
    let delete = || Terminal::start(rig.hsmux("key delete --label web --all --yes"));
    let mut wrong = delete();
    wrong.answer("type its name: ", "y");
    assert!(wrong.fails().contains("nothing was deleted"));
    assert_eq!(objects(&rig), ALL);
    let mut right = delete();
    right.answer("type its name: ", "web");
    right.ok();
    assert_eq!(objects(&rig), ALL[..1]);
}
