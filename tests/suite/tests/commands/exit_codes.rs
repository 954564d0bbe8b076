//! The table of exit codes in docs/operations.md: each row by commands that end so.

use std::fs;

use hsmux_suite::{PATIENCE, Process, Rig, Setup, source, until};
use rustix::process::Signal;

/// The rows of the page: code and meaning.
fn rows() -> Vec<(i32, String)> {
    let page = fs::read_to_string(source().join("docs/operations.md")).unwrap();
    let (_, table) = page.split_once("## Exit codes\n").expect("the table");
    let (table, _) = table.split_once("\n## ").expect("the next part");
    let row = |line: &str| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let code = cells.next()?.parse().ok()?;
        Some((code, cells.next()?.to_owned()))
    };
    table.lines().filter_map(row).collect()
}

#[test]
fn the_page_and_the_help_have_the_same_table() {
    let help = Rig::prepare(Setup::Daemon, 0).hsmux("--help").ok().out;
    let rows = rows();
    let codes: Vec<_> = rows.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [0, 1, 2, 3, 4]);
    for (code, meaning) in rows {
        let (short, _) = meaning.split_once(" (").unwrap_or((&meaning, ""));
        let line = format!("\n  {code}  {short}\n");
        assert!(help.contains(&line), "{line:?} is not in\n{help}");
    }
}

#[track_caller]
fn ends_with(rig: &Rig, code: i32, lines: &[&str]) {
    for line in lines {
        let run = rig.hsmux(line).finish();
        assert_eq!(run.code, Some(code), "{run}");
    }
}

#[test]
fn commands_end_with_the_code_of_their_row() {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.start();
    rig.hsmux("key generate ec:p256 --label web").ok();
    ends_with(
        &rig,
        0,
        &[
            "status --check",
            "config check",
            "doctor",
            "key list",
            "key verify",
            "bench sign --count 5",
        ],
    );
    ends_with(
        &rig,
        1,
        &[
            "key csr --label absent --subject CN=x",
            "token resume nobody",
            "bench sign --label absent",
            "serve",
        ],
    );
    ends_with(
        &rig,
        2,
        &[
            "no-such-command",
            "key verify --type nonsense",
            "key generate rsa:17 --label x",
            "key generate ec:p256 --label x --id 0x0a",
            "key csr --subject CN=x",
            "bench sign --mechanism nonsense",
            "status --config none.toml",
        ],
    );
    rig.hsmux("token park hsm2").ok();
    ends_with(&rig, 3, &["status --check", "doctor", "key verify"]);
    let mut sign = Process::start("sign", &rig.path(""), rig.hsmux("bench sign --time 10m"));
    let served = || rig.status()["members"][0]["served"].as_u64().unwrap_or(0);
    let before = served();
    until("it signs", PATIENCE, || {
        (served() > before + 10).then_some(())
    });
    sign.signal(Signal::INT);
    assert_eq!(sign.wait().code(), Some(3), "{}", sign.log());

    // Of a broken configuration, too, where the daemon runs.
    let written = fs::read_to_string(rig.path("hsmux.toml")).unwrap();
    fs::write(rig.path("hsmux.toml"), format!("{written}\nnonsense = 1\n")).unwrap();
    ends_with(
        &rig,
        2,
        &["config check", "reload", "bench sign --embedded"],
    );
    fs::write(rig.path("hsmux.toml"), written).unwrap();

    rig.stop();
    ends_with(
        &rig,
        4,
        &[
            "status",
            "status --check",
            "key list",
            "key generate ec:p256 --label x",
            "key delete --label web --all --yes --confirm web",
            "token park hsm1",
            "pin rotate",
            "reload",
            "stop",
            "bench sign",
            "bench burn-in --count 5",
            "bench scale",
            "bench compare --of daemon",
            "node ca init --label web",
        ],
    );
}
