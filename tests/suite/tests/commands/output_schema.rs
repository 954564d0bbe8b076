//! `docs/output-schema.json` and what commands print with `--json`, of a pool with members in every state.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, SystemTime};

use hsmux_suite::{OutputSchema, PATIENCE, Rig, SOFTHSM, Setup, SoftHsm, until};
use serde_json::Value;

/// `hsm1` serves, the token of `hsm3` is away, and `hsm4` has a wrong PIN. `hsm2` serves as well.
fn pool() -> Rig {
    let mut rig = Rig::empty(Setup::Daemon, 4);
    rig.config.members[2].uri = "pkcs11:token=absent".into();
    rig.config.members[2].more = "name = \"hsm3\"".into();
    rig.write_pin("hsm4", "not-the-pin");
    rig.start_daemon();
    rig.wait_for_members(2);
    until("the others do not serve", PATIENCE, || {
        let states = ["resting", "parked"].map(|state| rig.members_in(state));
        (states == [["hsm3"], ["hsm4"]]).then_some(())
    });
    rig
}

/// The time of a field, which is the last few minutes.
#[track_caller]
fn is_recent(time: &Value) {
    let text = time.as_str().expect("a time");
    let time = humantime::parse_rfc3339(text).expect("RFC 3339");
    let age = SystemTime::now().duration_since(time).unwrap_or_default();
    assert!(age < Duration::from_secs(600), "{text}");
}

#[test]
fn answers_are_as_the_schema_says() {
    let schema = OutputSchema::read();
    let rig = pool();
    let mut checked = BTreeSet::new();
    let mut answer = |name: &'static str, code: i32, line: &str| {
        let run = rig.hsmux(&format!("{line} --json")).finish();
        assert_eq!(run.code, Some(code), "{run}");
        checked.insert(name);
        schema.answer(name, &run)
    };
    answer("keys", 0, "key generate ec:p256 --label web");
    let again = answer("keys", 0, "key generate ec:p256 --label web --id 0b");
    assert!(again[0]["notes"][0].is_string(), "{again}");
    answer("keys", 0, "key delete --label web --dry-run");
    answer("lines", 0, "key delete --id 0b --all --yes --confirm web");
    answer("done", 0, "token park hsm2");
    answer("lines", 0, "token resume hsm2");
    answer("done", 0, "token park hsm2 --reason firmware");

    let status = answer("status", 0, "status");
    let members = status["members"].as_array().expect("members");
    let of_members: Vec<_> = members.iter().map(|member| &member["state"]).collect();
    assert_eq!(of_members, ["serving", "parked", "resting", "parked"]);
    let seats = status["pool"]["seats"].as_array().expect("workers");
    for seat in seats {
        is_recent(&seat["since"]);
    }
    let away = seats.iter().find(|seat| seat["member"] == "hsm3");
    is_recent(&away.expect("a worker")["last_error_at"]);
    answer("members", 0, "token list");
    for member in ["hsm1", "hsm2", "hsm3", "hsm4"] {
        answer("member", 0, &format!("token status {member}"));
    }
    let keys = answer("keys", 0, "key list");
    let replicas = keys[0]["replicas"].as_array().expect("replicas").iter();
    let of_replicas: BTreeSet<_> = replicas
        .filter_map(|replica| replica["state"].as_str())
        .collect();
    assert_eq!(of_replicas, BTreeSet::from(["away", "serving"]));
    answer("keys", 3, "key verify --label web");
    let pins = answer("pins", 0, "pin list");
    is_recent(&pins[0]["time"]);
    answer("pins", 0, "pin release hsm4");
    answer("findings", 3, "doctor");

    let slots = answer("slots", 0, &format!("token list --module {SOFTHSM}"));
    assert!(slots[0]["library_version"][0].is_u64(), "{slots}");
    rig.write_pin("so", SoftHsm::SO_PIN);
    let init = format!(
        "token init --module {SOFTHSM} --label spare --so-pin file:so.pin --pin file:hsm1.pin"
    );
    answer("new_token", 0, &init);

    let written = fs::read_to_string(rig.path("hsmux.toml")).unwrap();
    let with = |name: &str, more: &str| {
        fs::write(rig.path(name), format!("{written}\n{more}\n")).unwrap();
    };
    with("broker.toml", "[broker]\nlisten = [\"127.0.0.1:8200\"]");
    let token_auth = |line: &str| format!("token-auth {line} --config broker.toml");
    let new = answer(
        "new_client_token",
        0,
        &token_auth("create billing --expires 1h"),
    );
    assert!(new["expires"].is_string(), "{new}");
    answer("new_client_token", 0, &token_auth("create billing"));
    let tokens = answer("client_tokens", 0, &token_auth("list"));
    is_recent(&tokens[0]["created"]);
    answer("revoked", 0, &token_auth("revoke billing"));
    with("mistake.toml", "nonsense = 1");
    answer("mistakes", 2, "config check --config mistake.toml");

    // Nothing that the page promises is left out.
    checked.insert("error");
    assert_eq!(checked, schema.names());
}

#[test]
fn errors_are_as_the_schema_says() {
    let schema = OutputSchema::read();
    let mut rig = pool();
    rig.hsmux("key generate ec:p256 --label web").ok();
    let fails = |code: i32, line: &str| {
        let run = rig.hsmux(&format!("{line} --json")).fails();
        schema.error(code, &run)
    };
    // Wrong arguments.
    for line in [
        "no-such-command",
        "key verify --type nonsense",
        "key generate rsa:17 --label x",
        "key delete --label web",
        "bench sign --nonsense",
        "status --config none.toml",
        "token init --module none.so --label x --uri nonsense",
    ] {
        fails(2, line);
    }
    // Unknown keys, members and modules.
    for line in [
        "key csr --label absent --subject CN=x",
        "token status nobody",
        "token park nobody",
        "pin rotate nobody",
        "bench sign --label absent",
        "token list --module none.so",
    ] {
        fails(1, line);
    }
    // Of the daemon, with its kind.
    rig.hsmux("token park hsm2").ok();
    let last = fails(1, "token park hsm1");
    assert_eq!(last["error"]["kind"], "Forbidden");
    let pin = fails(1, "token resume hsm4");
    assert!(
        pin["error"]["message"]
            .to_string()
            .contains("hsmux token resume hsm4")
    );
    // People get a text.
    let text = rig.hsmux("token park hsm1").fails();
    assert!(text.err.starts_with("hsmux: hsm1: "), "{text}");
    rig.stop();
    let stopped = schema.error(4, &rig.hsmux("status --json").fails());
    assert!(
        stopped["error"]["message"]
            .to_string()
            .contains("hsmux serve")
    );
}
