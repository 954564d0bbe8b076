//! Entry for fuzz targets: the journal as a start reads it.

use hsmux_token::{Attributes, Class, ObjectId, ck};

use super::journal::{self, Intent, JournalRecord, MemberPart};
use super::member_task::MemberTask;
use hsmux_state::json::{Cbor, Name};

/// Reads a journal. Its state is worth the same when a compacted journal has it in one line.
pub fn journal(bytes: &[u8]) -> bool {
    let Some(read) = journal::compacted(bytes) else {
        return false;
    };
    let again = journal::compacted(&read).expect("a compacted journal can be read");
    assert!(again == read, "a compacted journal says something else");
    true
}

/// Lines of every kind but a snapshot.
pub fn example() -> Vec<u8> {
    let object = ObjectId::of_unidentified(Class::SECRET_KEY, "1", b"id", b"label");
    let template = Attributes::default().with(ck::CKA_LABEL, b"label".to_vec());
    let create = MemberTask::Create {
        makes: object,
        template: template.clone(),
    };
    let set = MemberTask::Set {
        object,
        becomes: object,
        template,
        is_undo: false,
    };
    let local = Attributes::default().with_flag(ck::CKA_LOCAL, true);
    let part = |serial: &str| MemberPart {
        serial: serial.into(),
        works: vec![Cbor(create.clone()), Cbor(set.clone())],
        undo: vec![Cbor(MemberTask::Fetch { makes: object })],
        later: false,
    };
    let intent = Intent {
        call: "C_CreateObject".into(),
        need: 2,
        parts: vec![part("1"), part("2"), part("3")],
        makes: vec![Name(object)],
        removes: vec![Name(object.with_class(Class::DATA))],
        origins: vec![(Name(object), Cbor(local))],
    };
    let begin = |change| JournalRecord::Begin {
        change,
        call: "C_CreateObject".into(),
    };
    let step = |serial: &str| JournalRecord::Step {
        change: 1,
        serial: serial.into(),
    };
    let records = [
        JournalRecord::Seen {
            member: "a".into(),
            serial: "1".into(),
        },
        begin(1),
        JournalRecord::Intent {
            change: 1,
            intent: intent.clone(),
            at: 1,
        },
        step("1"),
        step("2"),
        JournalRecord::Commit { change: 1 },
        JournalRecord::Applied {
            change: 1,
            serial: "3".into(),
        },
        begin(2),
        JournalRecord::Intent {
            change: 2,
            intent,
            at: 2,
        },
        JournalRecord::Undone {
            change: 2,
            why: "too few".into(),
            untouched: vec!["2".into()],
        },
        JournalRecord::Unexplained {
            objects: vec![Name(object.with_class(Class::DATA))],
        },
        JournalRecord::Placed {
            serial: "1".into(),
            objects: vec![Name(object)],
        },
    ];
    let line = |record| serde_json::to_string(&record).expect("a record is JSON") + "\n";
    records.map(line).concat().into_bytes()
}

/// The same in one line.
pub fn compacted(bytes: &[u8]) -> Option<Vec<u8>> {
    journal::compacted(bytes)
}
