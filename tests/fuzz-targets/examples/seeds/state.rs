//! Files of the daemon: its journal, its trail, its configuration.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hsmux_audit::{Actor, AuditFolder, Event, OnFailure, Settings, Trail};

use super::write;

pub fn journal() {
    let lines = hsmux_replicate::fuzzing::example();
    let all = lines.split_inclusive(|byte| *byte == b'\n');
    for (at, line) in all.clone().enumerate() {
        write("journal", &format!("line-{at}"), line);
    }
    let until: Vec<&[u8]> = all.take(4).collect();
    for (name, lines) in [("all", &lines), ("undecided", &until.concat())] {
        write("journal", name, lines);
        let one = hsmux_replicate::fuzzing::compacted(lines).expect("a journal");
        write("journal", &format!("{name}-compacted"), one);
    }
    write("journal", "torn", &lines[..lines.len() - 9]);
}

/// A trail of two runs, whose state folder is forgotten; the target knows its lines and its public key.
pub fn trail() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = Settings {
        file: folder.path().join("audit.log"),
        state: folder.path().to_owned(),
        uses: true,
        on_failure: OnFailure::Stop,
        checkpoint: Duration::from_millis(50),
    };
    let actor = Arc::new(Actor::process(1000, 7, "openssl"));
    for run in 0..2 {
        let trail = Trail::open(&settings).expect("a trail");
        for _ in 0..=run {
            let used = Event::key_use(&actor, "C_Sign", "00ff").mechanism(Some("CKM_ECDSA".into()));
            trail.commit(used.took(250)).expect("a line");
        }
        trail.close();
    }
    let lines = fs::read(&settings.file).expect("the trail");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    fs::write(data.join("trail.jsonl"), &lines).expect("the trail");
    let key = AuditFolder::of(&settings.state)
        .public_key()
        .expect("its key");
    fs::write(data.join("trail.pub"), key.to_string()).expect("its key");
    let all: Vec<_> = lines.split_inclusive(|byte| *byte == b'\n').collect();
    for (at, line) in all.iter().enumerate() {
        write("audit_lines", &format!("line-{at}"), line);
    }
    write("audit_lines", "all", &lines);
    write("audit_lines", "torn", &lines[..lines.len() - 9]);
    write(
        "audit_lines",
        "without-the-second",
        [&all[..1], &all[2..]].concat().concat(),
    );
    write(
        "audit_lines",
        "from-the-middle",
        all[all.len() / 2..].concat(),
    );
    write(
        "audit_lines",
        "older-lines",
        [b"{\"old\":1}\n", &lines[..]].concat(),
    );
}

pub fn configuration() {
    write("configuration", "example", hsmux_config::example());
    // Each section by itself, with all of its keys.
    let text = hsmux_config::full_example();
    let lines = text
        .lines()
        .map(|line| line.strip_prefix('#').unwrap_or(line));
    let mut sections = vec![String::new()];
    for line in lines.filter(|line| !line.starts_with(' ')) {
        if line.starts_with('[') {
            sections.push(String::new());
        }
        let last = sections.last_mut().expect("a section");
        last.push_str(line);
        last.push('\n');
    }
    for (at, section) in sections
        .iter()
        .enumerate()
        .filter(|(_, section)| !section.is_empty())
    {
        write("configuration", &format!("section-{at}"), section);
    }
    write("configuration", "everything", sections.concat());
}
