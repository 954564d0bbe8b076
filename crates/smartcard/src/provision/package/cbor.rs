//! How the parts of a package are written in CBOR.

use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

use crate::KeyReference;
use crate::dkek::WrappedKey;

impl<C> Encode<C> for KeyReference {
    fn encode<W: encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.u8(self.0)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for KeyReference {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        // 0 is the device's own key, which no file may touch.
        match d.u8()? {
            0 => Err(decode::Error::message("a key with the number 0")),
            number => Ok(Self(number)),
        }
    }
}

impl<C> Encode<C> for WrappedKey {
    fn encode<W: encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.bytes(self.as_bytes())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for WrappedKey {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Self::parse(d.bytes()?).map_err(decode::Error::message)
    }
}
