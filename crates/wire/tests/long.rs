//! Answers that no frame holds, and operations that are too long to travel together.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use common::*;
use hsmux_token::ck::{CKA_VALUE, CKO_DATA};
use hsmux_token::{
    Attributes, Batch, Error, Kind, Object, ObjectId, Operation, Outcome, Result, Snapshot, Token,
    TokenInfo,
};
use hsmux_wire::frame::MAX_FRAME;
use hsmux_wire::{Reactor, RemoteToken};

const MIB: u32 = 1 << 20;

/// Gives as many random bytes as are asked for, signs by repeating the data, and has an object of 20 MiB.
#[derive(Default)]
struct Long {
    has_object: AtomicBool,
}

impl Token for Long {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::default()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        let value = vec![0; 20 << 20];
        let attributes = Attributes::default().with(CKA_VALUE, value);
        let object = Object {
            id: ObjectId::of_data(b"", b"long", &CKO_DATA.to_le_bytes()),
            attributes,
        };
        let has_object = self.has_object.load(Ordering::SeqCst);
        Ok(Arc::new(Snapshot {
            epoch: 7,
            objects: has_object.then_some(object).into_iter().collect(),
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
        text.contains("its result is too long") && text.contains("16777216"),
        "{text}"
    );
    for (place, len) in [(0, 1), (2, 2), (3, MAX_FRAME - 64)] {
        assert_eq!(*answers[place].as_ref().unwrap(), len);
    }
    assert!(!lost.load(Ordering::SeqCst));
}

#[test]
fn objects_that_no_frame_holds_are_an_error_and_the_worker_goes_on() {
    let (token, long, lost) = worker();
    long.has_object.store(true, Ordering::SeqCst);
    let error = token.objects().unwrap_err();
    assert!(!error.ends_connection(), "{error}");
    assert!(error.to_string().contains("16777216"), "{error}");
    assert_eq!(together(&token, vec![random(5)])[0].as_ref().unwrap(), &5);
    long.has_object.store(false, Ordering::SeqCst);
    assert!(token.objects().unwrap().objects.is_empty());
    assert!(!lost.load(Ordering::SeqCst));
}
