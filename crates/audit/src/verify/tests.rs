//! Trails in memory, and changes to them.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use proptest::prelude::*;
use serde_json::json;

use super::{FindingKind, TrailVerdict, TrustAnchors, VerificationReport, verify};
use crate::audit_folder::Head;
use crate::chain::{Chain, Epoch};
use crate::keys::{CheckpointSigner, SealKey};
use crate::line::{CheckpointReason, StartFindings};

/// A trail of two files, whose last lines no checkpoint has signed.
struct TestTrail {
    lines: Vec<Vec<u8>>,
    /// The first line of the second file.
    second: usize,
    first_epoch: Epoch,
    last_epoch: Epoch,
    head: Head,
}

const SECRET: [u8; 32] = [9; 32];

fn write(tail: usize) -> TestTrail {
    let signer = CheckpointSigner::new(&SECRET);
    let first_epoch = Epoch::first().unwrap();
    let mut chain = Chain::after(0, [0; 32], first_epoch.clone());
    let mut block = Vec::new();
    let mut second = 0;
    let checkpoint = |chain: &mut Chain, why, block: &mut Vec<u8>| {
        chain.checkpoint(&signer, why, StartFindings::default(), block);
    };
    let add = |chain: &mut Chain, count: usize, block: &mut Vec<u8>| {
        for n in 0..count {
            let what = json!({ "uid": 7, "call": "C_Sign", "key": "00ff", "micros": n });
            chain.add(SystemTime::now(), &what, block);
        }
    };
    for (file, segments) in [[3, 4], [5, 1]].into_iter().enumerate() {
        let why = if file == 0 {
            CheckpointReason::Start
        } else {
            CheckpointReason::Open
        };
        if file == 1 {
            second = chain.seq as usize;
        }
        checkpoint(&mut chain, why, &mut block);
        for lines in segments {
            add(&mut chain, lines, &mut block);
            checkpoint(&mut chain, CheckpointReason::Time, &mut block);
        }
    }
    add(&mut chain, tail, &mut block);
    TestTrail {
        lines: block
            .split_inclusive(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect(),
        second,
        first_epoch,
        head: Head {
            seq: chain.seq,
            mac: chain.mac,
        },
        last_epoch: chain.epoch,
    }
}

impl TestTrail {
    fn known(&self) -> TrustAnchors {
        TrustAnchors {
            keys: vec![CheckpointSigner::new(&SECRET).public()],
            seal: Some(SealKey(self.last_epoch.clone())),
            head: Some(self.head.clone()),
            running: false,
        }
    }

    fn verify(&self) -> VerificationReport {
        self.verify_with(self.known())
    }

    fn verify_with(&self, known: TrustAnchors) -> VerificationReport {
        let second = self.second.min(self.lines.len());
        look_at(
            &[self.lines[..second].concat(), self.lines[second..].concat()],
            known,
        )
    }
}

fn look_at(texts: &[Vec<u8>], known: TrustAnchors) -> VerificationReport {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<PathBuf> = (0..texts.len())
        .map(|n| folder.path().join(n.to_string()))
        .collect();
    for (file, text) in files.iter().zip(texts) {
        fs::write(file, text).unwrap();
    }
    verify(&files, known, &|_| ()).unwrap()
}

fn kinds(report: &VerificationReport) -> Vec<FindingKind> {
    report.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn a_trail_as_it_was_written_is_whole() {
    let written = write(2);
    let report = written.verify();
    assert_eq!(report.verdict, TrailVerdict::Whole, "{report}");
    assert_eq!(
        (report.first, report.last),
        (Some(1), Some(written.head.seq))
    );
    assert_eq!(report.checkpoints, 6);
    assert_eq!(report.signed_to, Some(written.head.seq - 2));
}

#[test]
fn files_are_taken_in_the_order_of_their_lines() {
    let written = write(2);
    let (first, second) = written.lines.split_at(written.second);
    let report = look_at(&[second.concat(), first.concat()], written.known());
    assert_eq!(report.verdict, TrailVerdict::Whole, "{report}");
    // A later file alone, with its own beginning.
    let report = look_at(&[second.concat()], written.known());
    assert_eq!(report.verdict, TrailVerdict::Whole, "{report}");
    assert_eq!(report.first, Some(written.second as u64 + 1));
}

#[test]
fn with_the_public_key_alone_all_but_the_last_lines_are_proved() {
    let mut written = write(2);
    let public = || TrustAnchors {
        keys: vec![CheckpointSigner::new(&SECRET).public()],
        ..TrustAnchors::default()
    };
    let report = written.verify_with(public());
    assert_eq!(report.verdict, TrailVerdict::Remarks, "{report}");
    assert_eq!(report.remarks[0].kind, FindingKind::Unsigned);
    let at = written.lines.len() - 4;
    change(&mut written.lines[at], "00ff", "00fe");
    let report = written.verify_with(public());
    assert_eq!(kinds(&report), [FindingKind::Changed], "{report}");
    let other = TrustAnchors {
        keys: vec![CheckpointSigner::new(&[1; 32]).public()],
        ..TrustAnchors::default()
    };
    assert!(kinds(&write(0).verify_with(other)).contains(&FindingKind::Signature));
}

fn change(line: &mut Vec<u8>, from: &str, to: &str) {
    let text = String::from_utf8(line.clone()).unwrap();
    assert!(text.contains(from), "{text}");
    *line = text.replacen(from, to, 1).into_bytes();
}

#[test]
fn what_is_wrong_has_its_line_and_nothing_else_has() {
    // Lines 2 to 4 lie between the first two checkpoints, 1 and 5.
    type Act = fn(&mut TestTrail);
    let cases: &[(Act, FindingKind, u64, &str)] = &[
        (
            |w| change(&mut w.lines[2], "00ff", "00fe"),
            FindingKind::Changed,
            3,
            "line 3 was changed",
        ),
        (
            |w| change(&mut w.lines[2], "\"seq\":3", "\"seq\":9"),
            FindingKind::Changed,
            3,
            "line 3 was",
        ),
        (
            |w| change(&mut w.lines[2], "{\"v\"", "{'v'"),
            FindingKind::Changed,
            3,
            "no line any more",
        ),
        (
            |w| drop(w.lines.remove(2)),
            FindingKind::Missing,
            3,
            "line 3 is missing",
        ),
        (
            |w| drop(w.lines.drain(1..4)),
            FindingKind::Missing,
            2,
            "lines 2 to 4 are missing",
        ),
        (
            |w| w.lines.swap(1, 3),
            FindingKind::Moved,
            3,
            "stands after",
        ),
        (
            |w| w.lines.insert(2, w.lines[1].clone()),
            FindingKind::Foreign,
            3,
            "again",
        ),
        (
            |w| w.lines.insert(2, b"{}\n".to_vec()),
            FindingKind::Foreign,
            3,
            "not a line",
        ),
        (
            |w| change(&mut w.lines[4], "\"why\":\"time\"", "\"why\":\"stop\""),
            FindingKind::Signature,
            5,
            "line 5",
        ),
        (
            |w| w.lines.truncate(w.lines.len() - 1),
            FindingKind::CutOff,
            0,
            "lines 21 to 21",
        ),
    ];
    for (act, kind, line, message) in cases {
        let mut written = write(2);
        act(&mut written);
        let report = written.verify();
        let found = &report.findings;
        assert!(
            found.iter().all(|finding| finding.kind == *kind),
            "{message}: {report}"
        );
        assert_eq!(found[0].line, *line, "{message}: {report}");
        assert!(found[0].message.contains(message), "{message}: {report}");
    }
}

/// Its MAC has a key that is not disclosed at that point, although the lines after it follow it.
#[test]
fn a_checkpoint_that_is_made_a_line_like_others_is_found() {
    for tail in [0, 2] {
        let mut written = write(tail);
        let checkpoint = written.lines.len() - tail - 1;
        let text = String::from_utf8(written.lines[checkpoint].clone()).unwrap();
        written.lines[checkpoint] = text.replace("\"checkpoint\"", "\"che_kpoint\"").into();
        let report = written.verify();
        assert_eq!(report.verdict, TrailVerdict::Altered, "{report}");
    }
}

/// The key of a segment is disclosed: new MACs made with it still meet the signature.
#[test]
fn a_segment_that_is_made_anew_does_not_lead_to_its_checkpoint() {
    let mut written = write(0);
    let mut chain = Chain::after(0, [0; 32], written.first_epoch.clone());
    let first = crate::line::parts(written.lines[0].trim_ascii_end())
        .unwrap()
        .mac;
    chain = Chain::after(1, first, chain.epoch.next());
    for at in 1..4 {
        let mut line = Vec::new();
        chain.add(
            SystemTime::now(),
            &json!({ "call": "C_Decrypt" }),
            &mut line,
        );
        written.lines[at] = line;
    }
    let report = written.verify();
    assert_eq!(kinds(&report), [FindingKind::Changed], "{report}");
    assert!(
        report.findings[0].message.contains("lines 2 to 4"),
        "{report}"
    );
}

/// A thief of the state folder can sign, but cannot make the seals of the past.
#[test]
fn a_thief_of_the_state_folder_cannot_write_the_past_anew() {
    let written = write(0);
    let signer = CheckpointSigner::new(&SECRET);
    let stolen = written.last_epoch.secret.clone();
    let mut epoch = Epoch {
        number: 0,
        secret: stolen,
    };
    let mut forged = Vec::new();
    let mut chain = Chain::after(0, [0; 32], epoch.clone());
    for why in [
        CheckpointReason::Start,
        CheckpointReason::Time,
        CheckpointReason::Stop,
    ] {
        chain.checkpoint(&signer, why, StartFindings::default(), &mut forged);
        epoch = epoch.next();
    }
    let known = |seal| TrustAnchors {
        keys: vec![signer.public()],
        seal,
        ..TrustAnchors::default()
    };
    let alone = look_at(std::slice::from_ref(&forged), known(None));
    assert_eq!(alone.verdict, TrailVerdict::Whole, "{alone}");
    let first = SealKey(written.first_epoch.clone());
    let report = look_at(std::slice::from_ref(&forged), known(Some(first.clone())));
    assert_eq!(kinds(&report), [FindingKind::Seal; 3], "{report}");
    let report = written.verify_with(known(Some(first)));
    assert_eq!(report.verdict, TrailVerdict::Whole, "{report}");
}

#[test]
fn lines_of_an_older_hsmux_are_not_proved() {
    let mut written = write(0);
    let old = b"{\"time\":\"2026-01-01T00:00:00Z\",\"act\":\"stop\"}\n";
    written.lines.insert(0, old.to_vec());
    written.second += 1;
    let report = written.verify();
    assert_eq!(report.verdict, TrailVerdict::Remarks, "{report}");
    assert_eq!(report.remarks[0].kind, FindingKind::Unchained);
    // Before a later file they are foreign.
    let report = look_at(
        &[written.lines[written.second - 1..].concat()],
        written.known(),
    );
    assert_eq!(report.verdict, TrailVerdict::Altered, "{report}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// One byte of one line.
    #[test]
    fn any_byte_that_changes_is_found(line: prop::sample::Index, at: prop::sample::Index, to: u8) {
        let mut written = write(2);
        let line = line.index(written.lines.len());
        let at = at.index(written.lines[line].len());
        prop_assume!(written.lines[line][at] != to);
        written.lines[line][at] = to;
        let report = written.verify();
        prop_assert_eq!(report.verdict, TrailVerdict::Altered, "{}", report);
    }

    #[test]
    fn any_line_that_is_gone_is_found(from: prop::sample::Index, count in 1..5_usize) {
        let mut written = write(2);
        let from = from.index(written.lines.len());
        let to = (from + count).min(written.lines.len());
        // The first file may be missing as a whole: older files are optional.
        prop_assume!(!(from == 0 && to >= written.second));
        written.lines.drain(from..to);
        written.second -= written.second.min(to).saturating_sub(from);
        let report = written.verify();
        prop_assert_eq!(report.verdict, TrailVerdict::Altered, "{}", report);
    }

    #[test]
    fn any_line_in_another_place_is_found(from: prop::sample::Index, to: prop::sample::Index) {
        let mut written = write(2);
        let from = from.index(written.lines.len());
        let to = to.index(written.lines.len());
        prop_assume!(from != to);
        let line = written.lines.remove(from);
        written.lines.insert(to, line);
        let report = written.verify();
        prop_assert_eq!(report.verdict, TrailVerdict::Altered, "{}", report);
    }

    #[test]
    fn any_line_that_is_there_twice_is_found(from: prop::sample::Index, to: prop::sample::Index) {
        let mut written = write(2);
        let line = written.lines[from.index(written.lines.len())].clone();
        written.lines.insert(to.index(written.lines.len()), line);
        let report = written.verify();
        prop_assert_eq!(report.verdict, TrailVerdict::Altered, "{}", report);
    }

    /// Also between two lines, and at a checkpoint: the state folder has the head.
    #[test]
    fn any_cut_is_found(keep: prop::sample::Index) {
        let written = write(2);
        let text = written.lines.concat();
        let cut = keep.index(text.len());
        let report = look_at(&[text[..cut].to_vec()], written.known());
        prop_assert_eq!(report.verdict, TrailVerdict::Altered, "{}", report);
    }

    /// No content of a file makes it panic.
    #[test]
    fn any_bytes_are_read(text: Vec<u8>, at: prop::sample::Index) {
        let mut all = write(1).lines.concat();
        let at = at.index(all.len());
        all.splice(at..at, text);
        look_at(&[all], TrustAnchors::default());
    }
}
