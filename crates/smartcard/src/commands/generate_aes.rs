use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::file::KeyReference;
use crate::tlv::tlv;

/// Size of an AES key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AesSize {
    /// 128 bits.
    Bits128 = 0xB0,
    /// 192 bits.
    Bits192 = 0xB1,
    /// 256 bits.
    Bits256 = 0xB2,
}

/// The uses of an AES key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AesAlgorithm {
    /// Encipher in CBC mode.
    CbcEncrypt = 0x10,
    /// Decipher in CBC mode.
    CbcDecrypt = 0x11,
    /// CMAC (SP 800-38B).
    Cmac = 0x18,
    /// Leave the card under the DKEK ([`Card::wrap_key`]).
    Wrap = 0x92,
    /// Derive a key (SP 800-56C).
    Derive = 0x99,
}

impl AesAlgorithm {
    /// Everything that a key may do.
    pub const ALL: [Self; 5] = [
        Self::CbcEncrypt,
        Self::CbcDecrypt,
        Self::Cmac,
        Self::Wrap,
        Self::Derive,
    ];
}

const NAME: &str = "GENERATE SYMMETRIC KEY";

impl<C: CardChannel> Card<C> {
    /// Makes an AES key that may do what is listed, and be used so often (for ever, if nothing is said)
    /// (sc-hsm-embedded `encodeGSK`). Cards before version 3 have none (`6A86` or `6D00`).
    pub fn generate_aes(
        &mut self,
        key: KeyReference,
        size: AesSize,
        algorithms: &[AesAlgorithm],
        use_counter: Option<u32>,
    ) -> Result<(), CardError> {
        let algorithms: Vec<u8> = algorithms
            .iter()
            .map(|algorithm| *algorithm as u8)
            .collect();
        let counter = use_counter.map(|counter| tlv(0x90, &[&counter.to_be_bytes()]));
        let command = CommandApdu::new(0x00, instruction::GENERATE_KEY, key.0, size as u8)
            .with_data([tlv(0x91, &[&algorithms]), counter.unwrap_or_default()].concat());
        self.run(NAME, command).map(drop)
    }
}
