//! Frames: a 32-bit little-endian length, then one CBOR item (RFC 8949) of that many bytes.

mod bounds;
mod buffer;

use bytes::Bytes;
use hsmux_token::{Error, Kind, Result};
use minicbor::{Decode, Encode};
use zeroize::Zeroize;

pub(crate) use bounds::claimed_operations;
pub use bounds::{ANSWER_ITEMS, CALL_ITEMS, count_items};
pub use buffer::FrameBuffer;

use crate::{Answer, Call, Greeting, Hello, Reply};

/// The longest CBOR item, in bytes: a catalogue of ten thousand objects fits well.
pub const MAX_FRAME: usize = 16 << 20;

/// The longest frame before a peer has been greeted.
pub(crate) const MAX_GREETING: usize = 4 << 10;

/// The longest frame that carries a secret: a PIN, or the paths and the PIN of a worker's start.
pub const MAX_SECRET: usize = 4 << 10;

const HEADER: usize = 4;

/// What a connection keeps of a buffer between frames, in bytes.
pub(crate) const KEPT: usize = 4 << 10;

/// What travels in a frame of its own.
pub trait Message: Encode<()> {
    /// How long its frame may be.
    fn longest(&self) -> usize {
        MAX_FRAME
    }
}

impl Message for Hello {}
impl Message for Greeting {}
impl Message for Answer {}
impl Message for Reply {}

impl Message for Call {
    fn longest(&self) -> usize {
        match self {
            Self::Login(_) | Self::Start(_) => MAX_SECRET,
            _ => MAX_FRAME,
        }
    }
}

/// Appends the frame of `message` to `out`; on an error `out` is as before.
pub fn encode<T: Message>(message: &T, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    // Writing to a Vec cannot fail; what is left is a message that cannot be written down at all.
    let written = minicbor::encode(message, &mut *out)
        .map_err(|error| Error::protocol(format!("a message cannot be encoded: {error}")))
        // The caller's fault: the same would not fit on any other way.
        .and_then(|()| {
            let len = out.len() - start - HEADER;
            check_len(len, message.longest()).map_err(|why| Error::request(Kind::Invalid, why))
        });
    match written {
        Ok(len) => out[start..start + HEADER].copy_from_slice(&len.to_le_bytes()),
        Err(_) => out.truncate(start),
    }
    written.map(drop)
}

/// Appends the frame of an answer, in the form of the version agreed: version 1 has no epoch.
pub fn encode_reply(version: u16, reply: &Reply, out: &mut Vec<u8>) -> Result<()> {
    if version >= 2 {
        encode(reply, out)
    } else {
        encode(&reply.answer, out)
    }
}

/// Reads a frame's item; byte strings become slices of the frame. Its bounds are those of an answer.
pub fn decode<T>(frame: &Bytes) -> Result<T>
where
    T: for<'b> Decode<'b, Bytes>,
{
    count_items(frame, ANSWER_ITEMS).map_err(malformed)?;
    decode_counted(frame)
}

/// Reads an item whose bounds are known to be good.
pub(crate) fn decode_counted<T>(frame: &Bytes) -> Result<T>
where
    T: for<'b> Decode<'b, Bytes>,
{
    let mut decoder = minicbor::Decoder::new(frame);
    let message = decoder.decode_with(&mut frame.clone()).map_err(malformed)?;
    match frame.len() - decoder.position() {
        0 => Ok(message),
        rest => Err(malformed(format_args!("{rest} bytes after its end"))),
    }
}

/// Reads an answer in the form of the version agreed; without an epoch (version 1) it is 0.
pub fn decode_reply(version: u16, frame: &Bytes) -> Result<Reply> {
    if version >= 2 {
        decode(frame)
    } else {
        decode(frame).map(|answer| Reply::new(0, answer))
    }
}

/// Reads a call. One that carries a secret is copied out, and the frame wiped.
pub fn decode_call(mut frame: Vec<u8>) -> Result<Call> {
    let counted = count_call(&frame);
    if !carries_secret(&frame) {
        return counted.and_then(|_| decode_counted(&frame.into()));
    }
    let call = counted.and_then(|_| minicbor::decode_with(&frame, &mut ()).map_err(malformed));
    frame.zeroize();
    call
}

fn malformed(why: impl std::fmt::Display) -> Error {
    Error::protocol(format!("a malformed frame: {why}"))
}

/// How many data items a call has, where they may be so many.
pub(crate) fn count_call(frame: &[u8]) -> Result<usize> {
    count_items(frame, CALL_ITEMS).map_err(malformed)
}

/// Whether an encoded call is [`Call::Login`] or [`Call::Start`]: an array of two, then the variant. Answers may
/// begin with the same bytes.
pub(crate) fn carries_secret(call: &[u8]) -> bool {
    matches!(call, [0x82, 4 | 7, ..])
}

fn check_len(len: usize, limit: usize) -> Result<u32, String> {
    match u32::try_from(len) {
        Ok(short) if len <= limit => Ok(short),
        _ => Err(format!("a frame of {len} bytes; {limit} are the most")),
    }
}
