//! Lines that are read back from files: the audit trail, and the journal of changes.

use std::sync::LazyLock;

use hsmux_audit::{PublicKey, verify::TrailVerdict};

/// The public key of a trail whose secrets nobody has kept.
const KEY: &str = include_str!("../data/trail.pub");

/// That trail, which begins at its first line.
const TRAIL: &[u8] = include_bytes!("../data/trail.jsonl");

/// A trail is whole only if it was written so.
pub fn lines(input: &[u8]) {
    static KEY_OF_TRAIL: LazyLock<PublicKey> = LazyLock::new(|| KEY.trim().parse().expect("a key"));
    let report = hsmux_audit::fuzzing::verify(input, &KEY_OF_TRAIL);
    assert_eq!(
        report.lines as usize,
        input.split_inclusive(|byte| *byte == b'\n').count()
    );
    if report.verdict != TrailVerdict::Altered {
        let whole = hsmux_audit::fuzzing::signed(input, &report);
        let has = |line: &[u8]| TRAIL.split(|byte| *byte == b'\n').any(|own| own == line);
        for line in whole {
            assert!(
                has(line),
                "not of the trail: {:?}",
                String::from_utf8_lossy(line)
            );
        }
    }
}

/// The journal of the changes to token objects.
pub fn journal(input: &[u8]) {
    hsmux_replicate::fuzzing::journal(input);
}
