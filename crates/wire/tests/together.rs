//! Which operations travel in one frame.

mod common;

use std::io::Write;
use std::sync::Arc;

use common::*;
use hsmux_token::{Batch, Done, Kind, Outcome, Request, Token};
use hsmux_wire::{Answer, Call, Connection, Item, Reactor, Reply, VERSION, frame, together};

/// The items of the next frame at the far end of a lane.
fn next_frame(lane: &mut Connection) -> Vec<Item> {
    let frame = lane.read(frame::MAX_FRAME, Some(soon())).unwrap();
    match frame::decode_call(frame).unwrap() {
        Call::Execute(items) => items,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_waits_for_a_busy_lane_travels_in_one_frame() {
    let reactor = Reactor::start().unwrap();
    let (token, mut far) = unserved(&reactor, 1);
    let mut told = Vec::new();
    together(|| {
        for n in 0..4 {
            told.push(submit(&token, sign(&[n]), LONG));
        }
    });
    let mut lane = Connection::new(far.remove(0));
    let first = next_frame(&mut lane);
    assert_eq!(first.len(), 1, "a lane that is idle does not wait for more");
    let second = next_frame(&mut lane);
    assert_eq!(second.len(), 3);
    // The worker answers the first frame, and dies in the middle of the second.
    let reply = Reply::new(0, Answer::Results(vec![Ok(Outcome::Done)]));
    lane.write(&reply, Some(soon())).unwrap();
    heard(&told[0]).unwrap();
    drop(lane);
    for told in &told[1..] {
        assert_eq!(heard(told).unwrap_err().kind(), Kind::Lost);
    }
}

#[test]
fn what_follows_answers_that_come_together_travels_together() {
    let reactor = Reactor::start().unwrap();
    let (token, mut far) = unserved(&reactor, 1);
    for n in 0..4 {
        let next = Arc::clone(&token);
        let follow = move |_| drop(submit(&next, sign(&[n + 4]), LONG));
        token.submit(Batch::from_iter([Request {
            behalf: None,
            operation: sign(&[n]),
            deadline: soon(),
            done: Done::new(follow),
        }]));
    }
    let mut answers = Vec::new();
    for _ in 0..3 {
        let reply = Reply::new(0, Answer::Results(vec![Ok(Outcome::Done)]));
        frame::encode_reply(VERSION, &reply, &mut answers).unwrap();
    }
    far[0].write_all(&answers).unwrap();
    let mut lane = Connection::new(far.remove(0));
    for _ in 0..4 {
        assert_eq!(next_frame(&mut lane).len(), 1);
    }
    assert_eq!(next_frame(&mut lane).len(), 3);
}
