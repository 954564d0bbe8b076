//! The daemon's log: sentences, without JSON and certificates in them.

use std::fs;

use hsmux_suite::{PATIENCE, Rig, Setup, until};
use serde_json::Value;

/// Longer than every path and every name of a key.
const LONGEST_WORD: usize = 100;

/// Much of what an administrator does, and much that goes wrong. Returns the log.
fn eventful_run(options: &str) -> String {
    let mut rig = Rig::empty(Setup::Daemon, 4);
    rig.config.members[2].uri = "pkcs11:token=absent".into();
    rig.config.members[2].more = "name = \"hsm3\"".into();
    rig.write_pin("hsm4", "not-the-pin");
    rig.write_config();
    let serve = rig.hsmux(&format!("serve --log debug {options}"));
    rig.start_by(serve);
    rig.wait_for_members(2);
    let ok = |line: &str| {
        rig.hsmux(line).ok();
    };
    let fails = |line: &str| {
        rig.hsmux(line).fails();
    };
    ok("key generate ec:p256 --label web");
    ok("key csr --label web --subject CN=web --out web.csr");
    rig.certify("web.csr", "web.crt");
    ok("key cert import web.crt");
    fails("key csr --label absent --subject CN=web");
    rig.hsmux("bench sign --label web --count 5").ok();
    ok("key generate aes:256 --label backup");
    ok("token park hsm2 --reason firmware");
    fails("token resume hsm4");
    ok("token resume hsm2");
    ok("key clone");
    ok("key delete --label web --all --yes --confirm web");
    ok("pin rotate hsm1");
    fails("token park nobody");
    rig.config.members[1].more = "sessions = 2".into();
    rig.write_config();
    rig.hsmux("reload").ok();
    let mistake = format!("{}\nnonsense = 1\n", rig.config);
    fs::write(rig.path("hsmux.toml"), mistake).unwrap();
    rig.hsmux("reload").fails();
    rig.write_config();
    let log = |rig: &Rig| rig.daemon.as_ref().expect("a daemon").log();
    until("the log has the last act", PATIENCE, || {
        log(&rig)
            .contains("the configuration stays as it was")
            .then_some(())
    });
    log(&rig)
}

#[track_caller]
fn is_readable(line: &str) {
    let text = line.replace("\\\"", "\"");
    for banned in ["{\"", "[\"", "[{", "BEGIN CERTIFICATE"] {
        assert!(!text.contains(banned), "{banned:?} in {line}");
    }
    let is_code = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let longest = text.split(|c| !is_code(c)).map(str::len).max();
    assert!(longest < Some(LONGEST_WORD), "a long code in {line}");
}

#[test]
fn lines_for_people_have_no_json_and_no_certificates() {
    let log = eventful_run("");
    log.lines().for_each(is_readable);
    // It did happen, and the log says so.
    for said in [
        "act=\"cert-import der=(",
        "act=\"key-generate label=web spec=ec:p256\"",
        "changes=\"hsm2 changed",
    ] {
        assert!(log.contains(said), "{said}\n{log}");
    }
}

#[test]
fn lines_for_programs_are_json_without_json_in_them() {
    let log = eventful_run("--log-format json");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect();
    assert!(lines.len() > 10, "{log}");
    for line in lines {
        assert!(
            humantime::parse_rfc3339(line["timestamp"].as_str().unwrap()).is_ok(),
            "{line}"
        );
        for text in texts(&line) {
            is_readable(text);
        }
    }
}

/// The texts of all fields.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}
