//! Byte strings: shared without a copy, or secret and wiped.

use bytes::Bytes;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use zeroize::Zeroizing;

/// How a decoder hands out the byte strings of a frame: copied (`()`), or as slices of the frame.
pub trait Borrow {
    /// `part` is a slice of the frame that is being decoded.
    fn share(&self, part: &[u8]) -> Bytes;
}

impl Borrow for () {
    fn share(&self, part: &[u8]) -> Bytes {
        Bytes::copy_from_slice(part)
    }
}

impl Borrow for Bytes {
    fn share(&self, part: &[u8]) -> Bytes {
        self.slice_ref(part)
    }
}

/// A byte string that is shared, not copied, on its way through the layers.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Blob(pub Bytes);

impl std::ops::Deref for Blob {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<T: Into<Bytes>> From<T> for Blob {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

/// Shows the length only: a blob may be a plaintext.
impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl<C> Encode<C> for Blob {
    fn encode<W: encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.bytes(&self.0)?.ok()
    }
}

impl<'b, C: Borrow> Decode<'b, C> for Blob {
    fn decode(d: &mut Decoder<'b>, frame: &mut C) -> Result<Self, decode::Error> {
        Ok(Self(frame.share(d.bytes()?)))
    }
}

/// A PIN or another secret: wiped when dropped, never shown.
#[derive(Clone, Default)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over; the caller's own copies are the caller's to wipe.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The secret itself, for the call that needs it.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

impl<C> Encode<C> for Secret {
    fn encode<W: encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.bytes(&self.0)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Secret {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Ok(Self::new(d.bytes()?.to_vec()))
    }
}
