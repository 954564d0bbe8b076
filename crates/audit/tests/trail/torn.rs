//! Lines that a crash has torn, and what somebody passes off as such.

use std::fs;

use hsmux_audit::verify::{FindingKind, TrailVerdict, TrustAnchors, verify};

use crate::rig::{Rig, act, is_whole, remarks};

/// A start ends a torn line with a newline, and crashes before its checkpoint is whole.
#[test]
fn a_crash_while_a_torn_line_is_sealed_is_no_tampering() {
    for rest in ["", "{\"v\":1,\"seq\":3,\"time\":\"2026"] {
        let rig = Rig::new();
        let trail = rig.open();
        trail.commit(act("one")).unwrap();
        let crashed = rig.crash();
        drop(trail);
        let text = fs::read_to_string(crashed.path("audit.log")).unwrap();
        let text = format!("{text}{{\"v\":1,\"seq\":3,\"ti\n{rest}");
        fs::write(crashed.path("audit.log"), &text).unwrap();
        let report = crashed.verify(&["audit.log"]);
        assert_eq!(remarks(&report), [FindingKind::Torn], "{report}");
        let kept = fs::read(crashed.path("audit/head.json")).unwrap();
        for _ in 0..2 {
            crashed.open().commit(act("two")).unwrap();
            let report = crashed.verify(&["audit.log"]);
            let expected = [FindingKind::Torn, FindingKind::Unclean];
            assert_eq!(remarks(&report), expected, "{report}");
            // The next start finds the checkpoint that the state folder does not know.
            fs::write(crashed.path("audit/head.json"), &kept).unwrap();
        }
    }
}

/// A crash between the new file's first line and the state folder's word of it.
#[test]
fn a_crash_behind_a_rotation_is_followed() {
    let rig = Rig::new();
    let trail = rig.open();
    trail.commit(act("one")).unwrap();
    let kept = fs::read(rig.path("audit/head.json")).unwrap();
    fs::rename(rig.path("audit.log"), rig.path("audit.log.1")).unwrap();
    trail.reopen().unwrap();
    trail.commit(act("two")).unwrap();
    drop(trail);
    fs::write(rig.path("audit/head.json"), &kept).unwrap();
    rig.open().commit(act("three")).unwrap();
    is_whole(&rig.verify(&["audit.log", "audit.log.1"]));
}

/// The same, before the new file's first line is whole.
#[test]
fn a_crash_within_a_rotation_is_no_tampering() {
    let rig = Rig::new();
    let trail = rig.open();
    trail.commit(act("one")).unwrap();
    drop(trail);
    fs::rename(rig.path("audit.log"), rig.path("audit.log.1")).unwrap();
    fs::write(rig.path("audit.log"), "{\"v\":1,\"se").unwrap();
    let files = ["audit.log", "audit.log.1"];
    let report = rig.verify(&files);
    assert_eq!(remarks(&report), [FindingKind::Torn], "{report}");
    rig.open().commit(act("two")).unwrap();
    let report = rig.verify(&files);
    let expected = [FindingKind::Torn, FindingKind::Unclean];
    assert_eq!(remarks(&report), expected, "{report}");
}

/// They are JSON, and not torn: nobody may pass them off as the work of a crash.
const FORGED: &str = "{\"v\":1,\"seq\":9,\"act\":\"key-delete\",\"outcome\":\"ok\"}\n";

#[test]
fn forged_lines_after_the_end_are_no_torn_ones() {
    let rig = Rig::new();
    rig.open().commit(act("one")).unwrap();
    let text = fs::read_to_string(rig.path("audit.log")).unwrap();
    fs::write(rig.path("audit.log"), format!("{text}{FORGED}")).unwrap();
    let report = rig.verify(&["audit.log"]);
    assert_eq!(report.verdict, TrailVerdict::Altered, "{report}");
    // Nor does a start take them for its own.
    rig.open().commit(act("two")).unwrap();
    let report = rig.verify(&["audit.log"]);
    assert_eq!(report.verdict, TrailVerdict::Altered, "{report}");
}

#[test]
fn forged_lines_before_the_checkpoint_of_a_torn_line_are_found() {
    let rig = Rig::new();
    let trail = rig.open();
    trail.commit(act("one")).unwrap();
    let crashed = rig.crash();
    drop(trail);
    let text = fs::read_to_string(crashed.path("audit.log")).unwrap();
    fs::write(
        crashed.path("audit.log"),
        format!("{text}{{\"v\":1,\"seq\":3,\"ti"),
    )
    .unwrap();
    crashed.open().commit(act("two")).unwrap();
    let text = fs::read_to_string(crashed.path("audit.log")).unwrap();
    let start = text.find("\"torn\"").unwrap();
    let start = text[..start].rfind('\n').unwrap() + 1;
    for forged in [FORGED.repeat(3), "{\"v\":1,\"seq\":1,\"act\"\n".repeat(3)] {
        fs::write(
            crashed.path("audit.log"),
            format!("{forged}{}", &text[start..]),
        )
        .unwrap();
        let report = crashed.verify(&["audit.log"]);
        assert_eq!(report.verdict, TrailVerdict::Altered, "{report}");
    }
}

/// Only the file that the daemon writes may end with a part of a line.
#[test]
fn a_begun_line_of_another_file_is_no_line_that_is_being_written() {
    let rig = Rig::new();
    let trail = rig.open();
    trail.commit(act("one")).unwrap();
    drop(trail);
    fs::write(
        rig.path("audit.log.x"),
        "{\"v\":1,\"seq\":57,\"act\":\"key-delete\"",
    )
    .unwrap();
    let files = [rig.path("audit.log"), rig.path("audit.log.x")];
    let known = TrustAnchors {
        running: true,
        ..rig.known()
    };
    let report = verify(&files, known, &|_| ()).unwrap();
    assert_eq!(remarks(&report), [FindingKind::Torn], "{report}");
}

/// A file without an end, which a start must not read.
#[test]
fn a_file_of_zeros_beside_the_trail_holds_up_no_start() {
    let rig = Rig::new();
    rig.open().commit(act("one")).unwrap();
    let zeros = fs::File::create(rig.path("audit.log.x")).unwrap();
    zeros.set_len(1 << 40).unwrap();
    rig.open().commit(act("two")).unwrap();
    is_whole(&rig.verify(&["audit.log"]));
    // Nor at the end of its own file.
    let zeros = fs::OpenOptions::new()
        .write(true)
        .open(rig.path("audit.log"))
        .unwrap();
    zeros.set_len(1 << 40).unwrap();
    rig.open().commit(act("three")).unwrap();
}
