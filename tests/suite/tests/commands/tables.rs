//! Tables on wide and narrow terminals: they fit 80 columns, and become records at 40.

use std::fs;

use hsmux_suite::{Rig, SOFTHSM, Setup, Terminal};

/// An id of 20 bytes.
const ID: &str = "00112233445566778899aabbccddeeff00112233";

/// A pool with keys, a client's token, certificates of hosts and a trail.
fn rig() -> Rig {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.start();
    rig.hsmux(&format!("key generate ec:p256 --label web --id {ID}"))
        .ok();
    rig.hsmux("key generate aes:256 --label backup-of-2026 --id 0a")
        .ok();
    let written = fs::read_to_string(rig.path("hsmux.toml")).unwrap();
    let broker = format!("{written}\n[broker]\nlisten = [\"127.0.0.1:8200\"]\n");
    fs::write(rig.path("broker.toml"), broker).unwrap();
    rig.hsmux("token-auth create billing --config broker.toml")
        .ok();
    rig.hsmux("token-auth create web --expires 1h --config broker.toml")
        .ok();
    rig.hsmux("node ca init --name cluster").ok();
    rig.hsmux("node enroll web1").ok();
    rig
}

/// No line is wider, but for one word that is: it can be copied.
#[track_caller]
fn fits(text: &str, columns: usize) {
    for line in text.lines() {
        let is_word = line.split_whitespace().count() == 1;
        let fits = line.chars().count() <= columns;
        assert!(
            fits || is_word,
            "{} columns: {line:?}\n{text}",
            line.chars().count()
        );
    }
}

#[test]
fn tables_fit_80_columns_and_fold_at_40() {
    let rig = rig();
    let slots = format!("token list --module {SOFTHSM}");
    // The command, and a number, id or name that stays whole.
    let tables = [
        ("token list", "1/1"),
        ("token status hsm1", "SoftHSM"),
        ("key list", ID),
        (&slots, "hsm2"),
        ("pin list", "usable"),
        ("token-auth list --config broker.toml", "billing"),
        ("node list", "web1"),
        ("audit", "hsmux"),
        ("bench sign --label web --count 20", "20 in"),
    ];
    for (command, word) in tables {
        for columns in [80, 40] {
            let run = rig.hsmux(command).env("COLUMNS", columns.to_string()).ok();
            fits(&run.out, columns);
            assert!(
                run.out.contains(word),
                "{word:?} is broken at {columns}\n{run}"
            );
        }
    }
}

#[test]
fn a_narrow_terminal_gets_a_record_for_each_row() {
    let rig = rig();
    let screen = |command: &str, columns| {
        let screen = Terminal::with_columns(rig.hsmux(command), columns).ok();
        screen.replace('\r', "")
    };
    let head = "LABEL           CLASS        TYPE  ID";
    assert!(screen("key list", 120).contains(head));
    let narrow = screen("key list", 40);
    assert!(!narrow.contains(head), "{narrow}");
    let record = "LABEL      backup-of-2026\nCLASS      secret key\nTYPE       AES\nID         0a\nSERVED BY  hsm1 hsm2\n\n";
    assert!(narrow.contains(record), "{narrow}");
    assert!(narrow.contains(&format!("\nID\n{ID}\n")), "{narrow}");
    let members = screen("token list", 40);
    assert!(
        members.contains("MEMBER   hsm1\nSTATE    serving\nWORKERS  1/1\n"),
        "{members}"
    );
}
