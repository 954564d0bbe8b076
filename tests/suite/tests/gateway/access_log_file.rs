//! The output of the access log: its formats, rotation, reload, and errors.

use std::fs;

use hsmux_suite::{PATIENCE, Run, until};
use serde_json::Value;

use crate::access_log::{LOG, echo, lines, site};
use crate::backends::backend;
use crate::hosts::{connect, say};
use crate::many_backends::log;
use crate::rig::{FOLDER, Gateway, configure};

/// A gateway with a folder and these lines.
fn start(lines: &str) -> Gateway {
    Gateway::start(Gateway::prepare(), lines, &site("a.test", FOLDER))
}

/// Reloads with these lines of `[gateway]`, and waits until its log says so.
fn reload(gateway: &mut Gateway, lines: &str, said: &str) {
    configure(&mut gateway.rig, lines, &site("a.test", FOLDER));
    gateway.rig.reload();
    until(said, PATIENCE, || log(gateway).contains(said).then_some(()));
}

fn ask(gateway: &Gateway, path: &str) {
    assert_eq!(gateway.curl("a.test", path, "").code, Some(0));
}

#[test]
fn a_reload_turns_it_on_and_off_and_follows_a_rotation() {
    let mut gateway = start("");
    ask(&gateway, "/before");
    reload(&mut gateway, LOG, "/access.log\n");
    ask(&gateway, "/on");
    assert!(lines(&gateway, 1)[0].contains("/on"));
    let path = gateway.rig.path("access.log");
    let old = gateway.rig.path("access.log.1");
    fs::rename(&path, &old).expect("a rotation");
    reload(&mut gateway, LOG, "the configuration was read again");
    ask(&gateway, "/rotated");
    assert!(lines(&gateway, 1)[0].contains("/rotated"));
    reload(&mut gateway, "", "access_log goes nowhere");
    ask(&gateway, "/off");
    let other = "access_log = \"other.log\"";
    reload(&mut gateway, other, "/other.log\n");
    ask(&gateway, "/other");
    let other = gateway.rig.path("other.log");
    until("the last line", PATIENCE, || {
        let text = fs::read_to_string(&other).unwrap_or_default();
        text.ends_with('\n').then_some(())
    });
    let read = |path| fs::read_to_string(path).expect("a log");
    for (path, word) in [(&old, "/on"), (&path, "/rotated"), (&other, "/other")] {
        let text = read(path);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn a_broken_file_is_logged_once_and_requests_are_served() {
    let rig = Gateway::prepare();
    let folder = rig.path("logs");
    fs::create_dir(&folder).expect("a folder");
    let lines_of = "access_log = \"logs/access.log\"";
    let gateway = Gateway::start(rig, lines_of, &site("a.test", FOLDER));
    fs::remove_dir(&folder).expect("an empty folder");
    let lost = || gateway.metric("hsmux_gateway_access_log_lost_total");
    for count in 1..=3 {
        ask(&gateway, "/lost");
        until("a line is lost", PATIENCE, || {
            (lost() == count).then_some(())
        });
    }
    let said = log(&gateway);
    let line = "logs/access.log cannot be written; lines are lost";
    assert_eq!(said.matches(line).count(), 1, "{said}");
    fs::create_dir(&folder).expect("a folder");
    ask(&gateway, "/found");
    until("the line is there", PATIENCE, || {
        let text = fs::read_to_string(folder.join("access.log")).ok()?;
        text.contains("/found").then_some(())
    });
    until("the end of the error is logged", PATIENCE, || {
        let said = log(&gateway);
        said.contains("is written again; 3 lines were lost")
            .then_some(())
    });
    assert_eq!(lost(), 3);
}

#[test]
fn lines_reach_the_journal_as_they_are() {
    let lines_of = "access_log = \"journal\"\naccess_log_format = \"combined\"";
    let gateway = start(lines_of);
    ask(&gateway, "/journal");
    until("the line is there", PATIENCE, || {
        let log = log(&gateway);
        let line = log.lines().find(|line| line.contains("/journal"))?;
        assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
        Some(())
    });
}

/// goaccess reads all lines of the combined format.
#[test]
fn an_analyser_reads_the_combined_format() {
    let echo = format!("backend = \"tcp://{}\"", backend(echo));
    let sites = [site("t.wild.test", &echo), site("a.test", FOLDER)];
    let lines_of = format!("{LOG}\naccess_log_format = \"combined\"");
    let gateway = Gateway::start(Gateway::prepare(), &lines_of, &sites.concat());
    for version in ["--http1.1", "--http2"] {
        gateway
            .curl("a.test", "/page.txt?a=1", version)
            .says(" 200");
        gateway.curl("a.test", "/none", version).says(" 404");
    }
    let hostile = b"GET / HTTP/1.1\r\nHost: a.test\r\nUser-Agent: \"\\\" \xff\tx\r\nConnection: close\r\n\r\n";
    say(&gateway, "a.test", hostile);
    say(&gateway, "a.test", b"nonsense\r\n\r\n");
    drop(connect(&gateway, "t.wild.test", "any"));
    let all = lines(&gateway, 7);
    let (address, rest) = all[0].split_once(" - - [").expect("an address");
    assert_eq!(address, "127.0.0.1");
    let (_, rest) = rest.split_once(" +0000] ").expect("a time");
    assert!(
        rest.starts_with("\"GET /page.txt?a=1 HTTP/1.1\" 200 7 \"-\" \"curl/"),
        "{rest}"
    );
    let report = Run::new("goaccess")
        .dir(gateway.rig.path("").as_path())
        .args("access.log --log-format=COMBINED --no-global-config --no-progress --output=report.json")
        .finish();
    let json = fs::read(gateway.rig.path("report.json"));
    let json = json.unwrap_or_else(|e| panic!("{e}: {report}"));
    let read: Value = serde_json::from_slice(&json).expect("JSON");
    let general = &read["general"];
    assert_eq!(general["valid_requests"], 7, "{general} {all:?}");
    assert_eq!(general["failed_requests"], 0, "{general} {all:?}");
}
