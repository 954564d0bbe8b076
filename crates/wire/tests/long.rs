//! Answers that no frame holds, and operations that are too long to travel together.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use common::*;
use hsmux_token::ck::CKA_VALUE;
use hsmux_token::sync::Mutex;
use hsmux_token::{
    Attributes, Batch, Error, Kind, Object, ObjectId, Operation, Outcome, Result, Snapshot, Token,
    TokenInfo,
};
use hsmux_wire::frame::MAX_FRAME;
use hsmux_wire::{Reactor, RemoteToken};

const MIB: u32 = 1 << 20;

/// Gives as many random bytes as are asked for, signs by repeating the data, and has objects of these lengths.
#[derive(Default)]
struct Long {
    objects: Mutex<Vec<usize>>,
}

impl Token for Long {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::default()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        let object = |len: &usize| Object {
            id: ObjectId::of_data(b"", b"long", &len.to_le_bytes()),
            attributes: Attributes::default().with(CKA_VALUE, vec![0; *len]),
        };
        Ok(Arc::new(Snapshot {
            is_partial: false,
            epoch: 7,
            objects: self.objects.lock().iter().map(object).collect(),
        }))
    }

    fn submit(&self, batch: Batch) {
        for request in batch {
            let result = self.execute(&request.operation, request.deadline);
            request.done.complete(result);
        }
    }

    fn execute(&self, operation: &Operation, _: Instant) -> Result<Outcome> {
        match operation {
            Operation::Random { len } => Ok(Outcome::Bytes(vec![0; *len as usize].into())),
            Operation::Use { data, .. } => Ok(Outcome::Bytes(data.clone())),
            other => Err(Error::request(Kind::Unsupported, other.call())),
        }
    }
}

/// A worker with one lane that takes sixteen at once, and what is told when it is lost.
fn worker() -> (Arc<RemoteToken>, Arc<Long>, Arc<AtomicBool>) {
    let reactor = Reactor::start().unwrap();
    let long = Arc::new(Long::default());
    let token: Arc<dyn Token> = long.clone();
    let token = remote_of(&reactor, 1, 16, &token);
    let lost = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&lost);
    token.on_lost(Box::new(move |_| tell.store(true, Ordering::SeqCst)));
    (token, long, lost)
}

/// The lengths of what these give that come together.
fn together(token: &RemoteToken, operations: Vec<Operation>) -> Vec<Result<usize>> {
    let requests = operations.into_iter().map(|one| request(one, LONG));
    let (requests, told): (Vec<_>, Vec<_>) = requests.unzip();
    token.submit(Batch::from_iter(requests));
    let len = |outcome: Outcome| outcome.into_bytes().map(|bytes| bytes.len());
    told.iter().map(|told| heard(told).and_then(len)).collect()
}

fn random(len: u32) -> Operation {
    Operation::Random { len }
}

#[test]
fn short_calls_with_long_answers_do_not_share_a_frame() {
    let (token, _, lost) = worker();
    let answers = together(&token, vec![random(MIB); 40]);
    for answer in answers {
        assert_eq!(answer.unwrap(), MIB as usize);
    }
    assert!(!lost.load(Ordering::SeqCst));
}

#[test]
fn long_calls_do_not_share_a_frame() {
    let (token, _, lost) = worker();
    let answers = together(&token, vec![sign(&vec![7; 9 << 20]); 3]);
    for answer in answers {
        assert_eq!(answer.unwrap(), 9 << 20);
    }
    assert!(!lost.load(Ordering::SeqCst));
}

#[test]
fn an_answer_that_no_frame_holds_fails_its_own_call_alone() {
    let (token, _, lost) = worker();
    let too_long = MAX_FRAME as u32;
    let calls = vec![
        random(1),
        random(too_long),
        random(2),
        random(too_long - 64),
    ];
    let answers = together(&token, calls);
    let error = answers[1].as_ref().unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("the result is too long") && text.contains("16777216"),
        "{text}"
    );
    for (place, len) in [(0, 1), (2, 2), (3, MAX_FRAME - 64)] {
        assert_eq!(*answers[place].as_ref().unwrap(), len);
    }
    assert!(!lost.load(Ordering::SeqCst));
}

#[test]
fn the_longest_objects_are_left_out_where_a_frame_does_not_hold_all() {
    let (token, long, lost) = worker();
    for (lengths, shown) in [
        (&[1, 20 << 20, 2][..], &[1, 2][..]),
        (&[6 << 20, 5, 6 << 20, 7 << 20], &[6 << 20, 5, 6 << 20]),
        (&[MAX_FRAME], &[]),
        (&[2 << 20, 1], &[2 << 20, 1]),
    ] {
        lengths.clone_into(&mut long.objects.lock());
        let snapshot = token.objects().unwrap();
        let values = snapshot
            .objects
            .iter()
            .map(|one| one.attributes.get(CKA_VALUE));
        let values: Vec<_> = values.map(|value| value.unwrap().len()).collect();
        assert_eq!(values, shown);
    }
    assert!(!lost.load(Ordering::SeqCst));
}
