//! Frames out of a stream of bytes.

use hsmux_token::{Error, Result};
use zeroize::Zeroize;

use super::{HEADER, MAX_SECRET, carries_secret, check_len};
use crate::wipe::{empty, wipe};

/// Puts a stream of bytes together to frames: of answers, unless [`Self::of_calls`] has made it.
///
/// [`Self::next`] is called until it answers `None` before more is read.
#[derive(Default)]
pub struct FrameBuffer {
    /// Whether it hears calls, which may carry secrets.
    calls: bool,
    /// Bytes of frames that are not under way in `part`.
    bytes: Vec<u8>,
    taken: usize,
    part: Option<Part>,
}

/// The begin of a frame's item. One that may carry a secret has its whole room at once: moved or grown, it would
/// leave half a PIN behind.
struct Part {
    item: Vec<u8>,
    len: usize,
    secret: bool,
}

impl Part {
    fn begin(item: &mut [u8], len: usize, secret: bool) -> Self {
        let mut part = Self {
            secret,
            item: Vec::with_capacity(if secret { len } else { item.len() }),
            len,
        };
        part.item.extend_from_slice(item);
        wipe(item);
        part
    }

    /// Takes what belongs to it; answers the rest.
    fn extend<'a>(&mut self, read: &'a [u8]) -> &'a [u8] {
        let missing = self.len - self.item.len();
        let (mine, rest) = read.split_at(missing.min(read.len()));
        if self.item.capacity() - self.item.len() < mine.len() {
            // Twice as much as has come, and never more than will.
            let more = self.item.len().min(missing).max(mine.len());
            self.item.reserve_exact(more);
        }
        self.item.extend_from_slice(mine);
        rest
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.secret {
            self.item.zeroize();
        }
    }
}

impl FrameBuffer {
    /// For the end that is called.
    pub fn of_calls() -> Self {
        Self {
            calls: true,
            ..Self::default()
        }
    }

    fn is_secret(&self, item: &[u8]) -> bool {
        self.calls && carries_secret(item)
    }

    /// Takes what was read.
    pub fn extend(&mut self, read: &[u8]) {
        let rest = match &mut self.part {
            Some(part) => part.extend(read),
            None => read,
        };
        if !rest.is_empty() {
            self.close_up();
            self.bytes.extend_from_slice(rest);
        }
    }

    /// Moves what is left to the front.
    fn close_up(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        if taken > 0 {
            let left = self.bytes.len() - taken;
            self.bytes.copy_within(taken.., 0);
            wipe(&mut self.bytes[left..]);
            self.bytes.truncate(left);
        }
    }

    /// Bytes that wait for the rest of their frame.
    pub(crate) fn pending(&self) -> usize {
        let part = self.part.as_ref().map_or(0, |part| part.item.len());
        part + self.bytes.len() - self.taken
    }

    /// The length of the frame that is under way, as soon as it is known; 0 until then.
    pub(crate) fn under_way(&self) -> usize {
        let header = || self.bytes[self.taken..].first_chunk::<HEADER>();
        match &self.part {
            Some(part) => part.len,
            None => header().map_or(0, |header| u32::from_le_bytes(*header) as usize),
        }
    }

    /// The next whole frame's item. One that is longer than `limit`, or than [`MAX_SECRET`] with a secret, is an
    /// error that ends the stream.
    pub fn next(&mut self, limit: usize) -> Result<Option<Vec<u8>>> {
        if let Some(part) = &mut self.part {
            let whole = part.item.len() == part.len;
            let item = whole.then(|| std::mem::take(&mut part.item));
            if whole {
                self.part = None;
            }
            return Ok(item);
        }
        let rest = &self.bytes[self.taken..];
        let Some(header) = rest.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*header) as usize;
        check_len(len, limit).map_err(Error::protocol)?;
        let secret = self.is_secret(&rest[HEADER..]);
        if secret {
            check_len(len, MAX_SECRET).map_err(Error::protocol)?;
        }
        let item = &mut self.bytes[self.taken + HEADER..];
        let Some(whole) = item.get_mut(..len) else {
            // From the second byte on it is known whether a secret is to come.
            if item.len() > 1 {
                self.part = Some(Part::begin(item, len, secret));
                self.take(self.bytes.len() - self.taken);
            }
            return Ok(None);
        };
        let frame = whole.to_vec();
        wipe(whole);
        self.take(HEADER + len);
        Ok(Some(frame))
    }

    fn take(&mut self, count: usize) {
        self.taken += count;
        if self.taken == self.bytes.len() {
            self.taken = 0;
            empty(&mut self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(item: &[u8]) -> Vec<u8> {
        let len = u32::try_from(item.len()).unwrap().to_le_bytes();
        [&len[..], item].concat()
    }

    fn login(len: usize) -> Vec<u8> {
        let mut item = vec![0x82, 4, 0x81, 0x59, 0, 0];
        item.resize(len, b'1');
        frame(&item)
    }

    #[test]
    fn a_secret_stays_where_its_first_byte_was_put() {
        let stream = login(MAX_SECRET);
        let mut buffer = FrameBuffer::of_calls();
        let mut first = None;
        for byte in &stream[..stream.len() - 1] {
            buffer.extend(&[*byte]);
            assert_eq!(buffer.next(MAX_SECRET).unwrap(), None);
            if let Some(part) = &buffer.part {
                let at = part.item.as_ptr();
                assert_eq!(*first.get_or_insert(at), at);
                assert_eq!(buffer.bytes, []);
            }
        }
        buffer.extend(&stream[stream.len() - 1..]);
        let whole = buffer.next(MAX_SECRET).unwrap().unwrap();
        assert_eq!(first, Some(whole.as_ptr()));
        assert_eq!(whole, stream[HEADER..]);
    }

    /// The frame is refused as soon as it is known what it is, however it comes.
    #[test]
    fn a_long_secret_is_refused_at_its_second_byte() {
        let stream = login(MAX_SECRET + 1);
        for step in [1, 2, 5, 6, 64] {
            let mut buffer = FrameBuffer::of_calls();
            let mut came = 0;
            let refused = stream.chunks(step).find_map(|part| {
                buffer.extend(part);
                came += part.len();
                buffer.next(1 << 20).err()
            });
            let refused = refused.expect("an error").to_string();
            assert!(refused.contains("4096 are the most"), "{refused}");
            assert!(came < HEADER + 2 + step, "{came} in steps of {step}");
        }
    }

    /// The epoch of an answer stands where a call has its variant.
    #[test]
    fn a_long_answer_is_no_secret_whatever_it_begins_with() {
        let stream = login(MAX_SECRET + 1);
        for step in [1, 64, stream.len()] {
            let mut buffer = FrameBuffer::default();
            let frames = stream.chunks(step).filter_map(|part| {
                buffer.extend(part);
                buffer.next(1 << 20).unwrap()
            });
            assert_eq!(frames.collect::<Vec<_>>(), [&stream[HEADER..]]);
        }
    }

    #[test]
    fn room_is_made_for_what_has_come_and_not_for_what_is_claimed() {
        let mut buffer = FrameBuffer::default();
        buffer.extend(&(1_u32 << 24).to_le_bytes());
        for round in 1..=40_usize {
            buffer.extend(&[0; 1000]);
            assert_eq!(buffer.next(1 << 24).unwrap(), None);
            let room = buffer.part.as_ref().unwrap().item.capacity();
            assert!(room <= 2000 * round, "{room} after {round}");
        }
        let mut short = FrameBuffer::default();
        short.extend(&frame(&[0; 1500])[..1000]);
        assert_eq!(short.next(1500).unwrap(), None);
        short.extend(&[0; 508]);
        assert_eq!(short.next(1500).unwrap().unwrap().capacity(), 1500);
        assert_eq!(short.pending(), 4, "the next one's first bytes");
    }
}
