//! A full disk refuses a change before any member is touched.

use super::bench::{again, pair, secret};
use super::{Bench, in_own_process};
use hsmux_token::ck::{CKA_LABEL, CKM_AES_KEY_GEN};
use hsmux_token::{Attributes, Kind, Operation};
use std::process::Command;

const TWO: &[&str] = &["hsm1", "hsm2"];
const LIMITED: &str = "HSMUX_TEST_LIMITED";

#[test]
fn a_full_disk_refuses_a_change_before_any_member_is_touched() {
    let name = "full::a_full_disk_refuses_a_change_before_any_member_is_touched";
    in_own_process(name, TWO, |folder| {
        let bench = Bench::new(folder, TWO, 0);
        for _ in 0..4 {
            let made = bench.make(&secret(CKM_AES_KEY_GEN, 32, "first"));
            // New keys leave the journal when all have them; this stays.
            let set = Operation::SetAttributes {
                object: made[0].object.id.into(),
                template: Attributes::default().with(CKA_LABEL, "long".repeat(1024)),
            };
            bench.change(&set).unwrap();
        }
        drop(bench);
        // No file may grow past what the journal has: the kernel refuses its next line with EFBIG,
        // as a full disk does with ENOSPC. Kilobytes; the tokens' own files are far smaller.
        let journal = folder.join("state/replicate/journal.jsonl");
        let len = std::fs::metadata(&journal).unwrap().len();
        assert!(len > 8 * 1024, "{len}");
        let child = again("full::the_process_without_room", folder);
        let ran = Command::new("sh")
            .arg("-c")
            .arg(format!(
                "trap '' XFSZ; ulimit -f {}; exec \"$@\"",
                len / 512
            ))
            .arg("sh")
            .arg(child.get_program())
            .args(child.get_args())
            .envs(child.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .env(LIMITED, "1")
            // The limit also applies to a log of these tests.
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{told}");
        assert_eq!(std::fs::metadata(&journal).unwrap().len(), len);
        // With room again it goes on.
        let bench = Bench::new(folder, TWO, 0);
        assert_eq!(bench.everywhere().len(), 4);
        bench.make(&pair(false, "second"));
    });
}

/// Not a test by itself: what the one above runs.
#[test]
fn the_process_without_room() {
    if std::env::var_os(LIMITED).is_none() {
        return;
    }
    in_own_process("full::the_process_without_room", TWO, |folder| {
        let bench = Bench::new(folder, TWO, 0);
        let error = bench.change(&pair(false, "second")).unwrap_err();
        assert_eq!(error.kind(), Kind::Environment, "{error}");
        assert!(error.to_string().contains("journal.jsonl"), "{error}");
        assert!(error.to_string().contains("make room"), "{error}");
        assert_eq!(bench.everywhere().len(), 4);
    });
}
