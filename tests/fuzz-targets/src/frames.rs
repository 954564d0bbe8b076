//! Frames, at both ends.

use std::fmt::Debug;

use bytes::Bytes;
use hsmux_token::Operation;
use hsmux_wire::frame::{self, CALL_ITEMS, FrameBuffer, MAX_FRAME, MAX_SECRET};
use hsmux_wire::{Call, Hello, Reply, Welcome};
use minicbor::{Decode, Encode};

use crate::pieces::{pieces, split, stream};

/// Bytes of a frame's length.
const HEADER: usize = 4;

/// Calls, as the daemon and the workers read them.
pub fn calls(input: &[u8]) {
    let Some((how, rest)) = split(input) else {
        return;
    };
    for frame in frames(how, &stream(how, rest)) {
        same_again::<Hello>(&frame);
        if let Ok(call) = frame::decode_call(frame.clone()) {
            call_is_read_back(&call);
            looked_at(&call);
        }
    }
}

/// Answers, as applications and the daemon read them.
pub fn replies(input: &[u8]) {
    let Some((how, rest)) = split(input) else {
        return;
    };
    let version = 1 + u16::from(how >> 6 & 1);
    for frame in frames(how, &stream(how, rest)) {
        same_again::<Welcome>(&frame);
        if let Ok(reply) = frame::decode_reply(version, &frame.into()) {
            let write = |reply: &Reply| {
                let mut out = Vec::new();
                frame::encode_reply(version, reply, &mut out).expect("an answer that was read");
                out
            };
            let written = write(&reply);
            let item = Bytes::copy_from_slice(&written[HEADER..]);
            let again = frame::decode_reply(version, &item).expect("an answer that was written");
            assert_eq!(written, write(&again));
        }
    }
}

/// Puts a stream together and compares with what is in it.
fn frames(how: u8, stream: &[u8]) -> Vec<Vec<u8>> {
    let (expected, good) = model(stream);
    let (mut buffer, mut frames) = (FrameBuffer::of_calls(), Vec::new());
    for piece in pieces(how, stream) {
        buffer.extend(piece);
        loop {
            match buffer.next(MAX_FRAME) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    assert!(!good, "{error}");
                    assert_eq!(frames, expected);
                    return frames;
                }
            }
        }
    }
    assert!(good, "a frame that is too long was not refused");
    assert_eq!(frames, expected);
    frames
}

/// The whole frames, and whether nothing after them is too long.
fn model(mut stream: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let mut frames = Vec::new();
    while let Some((header, rest)) = stream.split_first_chunk::<HEADER>() {
        let len = u32::from_le_bytes(*header) as usize;
        // A call of a login or of a worker's start.
        let secret = matches!(rest, [0x82, 4 | 7, ..]);
        if len > if secret { MAX_SECRET } else { MAX_FRAME } {
            return (frames, false);
        }
        let Some((frame, rest)) = rest.split_at_checked(len) else {
            break;
        };
        frames.push(frame.to_vec());
        stream = rest;
    }
    (frames, true)
}

fn call_is_read_back(call: &Call) {
    let written = encoded(call);
    let again = frame::decode_call(written.clone()).expect("a call that was written");
    assert_eq!(written, encoded(&again));
}

/// What anybody asks of a call before it is carried out.
fn looked_at(call: &Call) {
    call.name();
    call.repeatable();
    let Call::Execute(items) = call else {
        return;
    };
    assert!(
        items.len() < CALL_ITEMS,
        "more operations than items of a frame"
    );
    for operation in items.iter().map(|item| &item.operation) {
        operation_is_looked_at(operation);
    }
}

pub fn operation_is_looked_at(operation: &Operation) {
    let good = operation.check().is_ok();
    operation.objects().for_each(|_| ());
    operation.exports();
    operation.changes_token();
    operation.makes_session_objects();
    if let Some((_, _, mechanism, _)) = operation.key_use() {
        assert_eq!(operation.mechanism(), Some(mechanism));
    }
    for template in operation.templates() {
        assert!(!good || template.check().is_ok());
    }
}

/// What can be read is read back as the same.
fn same_again<T>(item: &[u8])
where
    T: for<'b> Decode<'b, ()> + Encode<()> + Debug,
{
    if let Ok(read) = minicbor::decode::<T>(item) {
        let written = encoded(&read);
        let again: T = minicbor::decode(&written).expect("an item that was written");
        assert_eq!(written, encoded(&again));
    }
}

fn encoded<T: Encode<()>>(message: &T) -> Vec<u8> {
    let mut item = Vec::new();
    minicbor::encode(message, &mut item).expect("a message that was read");
    item
}
