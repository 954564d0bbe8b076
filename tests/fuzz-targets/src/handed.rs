//! Connections that were handed over: a program writes, a worker reads.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use hsmux_token::{Class, ObjectId};
use hsmux_wire::fuzzing::{FuzzedConnection, Reaction};

use crate::frames::operation_is_looked_at;
use crate::pieces::{pieces, split, stream};

/// The key that the connection is for: seeds name it.
const KEY: ObjectId = ObjectId {
    class: Class::PRIVATE_KEY,
    name: [7; 32],
};

/// Uses of one frame.
const MOST_USES: usize = 16;

/// Longer than a worker lets anybody wait.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A worker executes only uses of this key that pass the check.
pub fn direct(input: &[u8]) {
    thread_local! {
        static RIG: RefCell<FuzzedConnection> = RefCell::new(FuzzedConnection::new(KEY));
    }
    let Some((how, rest)) = split(input) else {
        return;
    };
    let shared = how & 0x40 != 0;
    let stream = stream(how, rest);
    let asked = RIG.with_borrow_mut(|rig| rig.hear(pieces(how, &stream), shared));
    match asked {
        Reaction::Uses(uses) => {
            assert!((1..=MOST_USES).contains(&uses.len()));
            for (operation, until) in uses.into_iter().flatten() {
                let (_, key, ..) = operation.key_use().expect("a use of a key");
                assert_eq!(key, KEY);
                assert!(operation.check().is_ok());
                assert!(until <= Instant::now() + DAY);
                operation_is_looked_at(&operation);
            }
        }
        Reaction::Nothing => assert!(!shared || stream.is_empty(), "half a frame was kept"),
        Reaction::Ended => {}
    }
}
