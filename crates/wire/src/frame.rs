//! Frames: a 32-bit little-endian length, then one CBOR item (RFC 8949) of that many bytes.

use bytes::Bytes;
use hsmux_token::{Error, Kind, Result};
use minicbor::{Decode, Encode};
use zeroize::Zeroize;

use crate::{Call, Reply};

/// The longest CBOR item, in bytes: a catalogue of ten thousand objects fits well.
pub const MAX_FRAME: usize = 16 << 20;

/// The longest frame before a peer has been greeted.
pub(crate) const MAX_GREETING: usize = 4 << 10;

const HEADER: usize = 4;

/// What a connection keeps of a buffer between frames, in bytes.
pub(crate) const KEPT: usize = 4 << 10;

/// Appends the frame of `message` to `out`; on an error `out` is as before.
pub fn encode<T: Encode<()>>(message: &T, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    // Writing to a Vec cannot fail; what is left is a message that cannot be written down at all.
    let written = minicbor::encode(message, &mut *out)
        .map_err(|error| Error::protocol(format!("a message cannot be encoded: {error}")))
        // The caller's fault: the same would not fit on any other way.
        .and_then(|()| {
            let len = out.len() - start - HEADER;
            check_len(len, MAX_FRAME).map_err(|why| Error::request(Kind::Invalid, why))
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

/// Reads a frame's item; byte strings become slices of the frame.
pub fn decode<T>(frame: &Bytes) -> Result<T>
where
    T: for<'b> Decode<'b, Bytes>,
{
    let mut decoder = minicbor::Decoder::new(frame);
    let message = decoder
        .decode_with(&mut frame.clone())
        .map_err(|error| Error::protocol(format!("a malformed frame: {error}")))?;
    match frame.len() - decoder.position() {
        0 => Ok(message),
        rest => Err(Error::protocol(format!(
            "a malformed frame: {rest} bytes after its end"
        ))),
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
    if !carries_secret(&frame) {
        return decode(&frame.into());
    }
    let call = minicbor::decode_with(&frame, &mut ())
        .map_err(|error| Error::protocol(format!("a malformed frame: {error}")));
    frame.zeroize();
    call
}

/// Whether an encoded call is [`Call::Login`] or [`Call::Start`]: an array of two, then the variant.
pub(crate) fn carries_secret(call: &[u8]) -> bool {
    matches!(call, [0x82, 4 | 7, ..])
}

/// Puts a stream of bytes together to frames.
#[derive(Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    taken: usize,
}

impl FrameBuffer {
    /// Takes what was read.
    pub fn extend(&mut self, read: &[u8]) {
        if self.holds_secret() {
            return self.extend_elsewhere(read);
        }
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(read);
    }

    /// Whether the frame that is under way carries a secret, as far as can be seen.
    pub(crate) fn holds_secret(&self) -> bool {
        let frame = &self.bytes[self.taken..];
        carries_secret(frame.get(HEADER..).unwrap_or_default())
    }

    /// Bytes that wait for the rest of their frame.
    pub(crate) fn pending(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// The length of the frame that is under way, as soon as it is known; 0 until then.
    pub(crate) fn under_way(&self) -> usize {
        let header = self.bytes[self.taken..].first_chunk::<HEADER>();
        header.map_or(0, |header| u32::from_le_bytes(*header) as usize)
    }

    /// Neither moved down nor grown in place: either would leave half a PIN behind.
    fn extend_elsewhere(&mut self, read: &[u8]) {
        let frame = &self.bytes[self.taken..];
        let mut longer = Vec::with_capacity((frame.len() + read.len()).next_power_of_two());
        longer.extend_from_slice(frame);
        longer.extend_from_slice(read);
        self.bytes.zeroize();
        self.bytes = longer;
        self.taken = 0;
    }

    /// The next whole frame's item; a longer one than `limit` is an error that ends the stream.
    pub fn next(&mut self, limit: usize) -> Result<Option<Vec<u8>>> {
        let rest = &mut self.bytes[self.taken..];
        let Some(header) = rest.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*header) as usize;
        let end = HEADER + check_len(len, limit).map_err(Error::protocol)? as usize;
        let Some(item) = rest.get_mut(HEADER..end) else {
            return Ok(None);
        };
        let frame = item.to_vec();
        if carries_secret(item) {
            item.zeroize();
        }
        self.taken += end;
        if self.taken == self.bytes.len() {
            self.taken = 0;
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
        }
        Ok(Some(frame))
    }
}

fn check_len(len: usize, limit: usize) -> Result<u32, String> {
    match u32::try_from(len) {
        Ok(short) if len <= limit => Ok(short),
        _ => Err(format!("a frame of {len} bytes; {limit} are the most")),
    }
}
