//! Files of the state folder that are torn, taken, long or forged.

use super::bench::{Bench, secret};
use super::in_own_process;
use crate::Coordinator;
use hsmux_token::ck::CKM_AES_KEY_GEN;
use hsmux_token::{Kind, Operation};
use std::io::Write;

const TWO: &[&str] = &["hsm1", "hsm2"];

#[test]
fn a_torn_last_line_is_cut_off_and_a_damaged_one_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    drop(Coordinator::open(folder.path(), 1).unwrap());
    let path = folder.path().join("replicate/journal.jsonl");
    let append = |text: &str| {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    append("{\"record\":\"begin\",\"change\":1,\"call\":\"C_CreateObject\"}\n{\"record\":\"int");
    drop(Coordinator::open(folder.path(), 1).unwrap());
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.ends_with("\"C_CreateObject\"}\n"), "{text}");
    append("nonsense\n");
    let error = Coordinator::open(folder.path(), 1).err().unwrap();
    assert_eq!(error.kind(), Kind::Environment);
    assert!(error.to_string().contains("line 2"), "{error}");
}

#[test]
fn a_second_writer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = Coordinator::open(folder.path(), 1).unwrap();
    let error = Coordinator::open(folder.path(), 1).err().unwrap();
    assert_eq!(error.kind(), Kind::Environment);
    assert!(error.to_string().contains("another hsmux"), "{error}");
    drop(first);
    Coordinator::open(folder.path(), 1).unwrap();
}

#[test]
fn forged_transport_keys_are_not_used() {
    in_own_process("state::forged_transport_keys_are_not_used", TWO, |folder| {
        Bench::new(folder, TWO, 0).make(&secret(CKM_AES_KEY_GEN, 32, "enrols"));
        let path = folder.join("state/replicate/transport.json");
        let text = std::fs::read_to_string(&path).unwrap();
        // One token's name for another's is enough.
        std::fs::write(&path, text.replacen("\"hsm1\"", "\"hsmX\"", 1)).unwrap();
        let error = Coordinator::open(&folder.join("state"), 0).err().unwrap();
        assert_eq!(error.kind(), Kind::Environment);
        assert!(error.to_string().contains("transport.json"), "{error}");
    });
}

#[test]
fn a_long_journal_is_compacted_and_says_the_same() {
    in_own_process(
        "state::a_long_journal_is_compacted_and_says_the_same",
        TWO,
        |folder| {
            let bench = Bench::new(folder, TWO, 0);
            let gone = bench.make(&secret(CKM_AES_KEY_GEN, 32, "goes"))[0]
                .object
                .id;
            let kept = bench.make(&secret(CKM_AES_KEY_GEN, 32, "stays"))[0]
                .object
                .id;
            bench
                .change(&Operation::Destroy {
                    object: gone.into(),
                })
                .unwrap();
            drop(bench);
            let path = folder.join("state/replicate/journal.jsonl");
            let mut file = std::fs::OpenOptions::new()
                .append(true)
                .open(&path)
                .unwrap();
            for change in 100..2_200 {
                writeln!(
                    file,
                    "{{\"record\":\"begin\",\"change\":{change},\"call\":\"C_Test\"}}"
                )
                .unwrap();
            }
            let bench = Bench::new(folder, TWO, 0);
            bench.make(&secret(CKM_AES_KEY_GEN, 32, "compacts"));
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            assert!(lines < 20, "{lines}");
            drop(bench);
            let bench = Bench::new(folder, TWO, 0);
            assert!(bench.coordinator.is_tombstoned(&gone));
            assert!(!bench.coordinator.is_tombstoned(&kept));
            let hsm1 = bench.pool.returns("hsm1");
            let told = bench.coordinator.catch_up(&*bench.pool, &hsm1).unwrap();
            assert!(
                told.missing.is_empty() && told.tombstoned.is_empty(),
                "{told:?}"
            );
            assert_eq!(bench.everywhere().len(), 2);
        },
    );
}

#[test]
fn applications_cannot_touch_transport_keys() {
    in_own_process(
        "state::applications_cannot_touch_transport_keys",
        TWO,
        |folder| {
            let bench = Bench::new(folder, TWO, 0);
            bench.make(&secret(CKM_AES_KEY_GEN, 32, "enrols"));
            let all = bench.token("hsm1").objects().unwrap();
            assert_eq!(all.objects.len(), 3);
            let mut refused = 0;
            for object in &all.objects {
                let destroy = Operation::Destroy {
                    object: object.id.into(),
                };
                refused += usize::from(bench.change(&destroy).is_err());
            }
            assert_eq!(refused, 2, "the transport pair stays");
        },
    );
}
