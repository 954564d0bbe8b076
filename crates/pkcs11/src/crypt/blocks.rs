//! Block ciphers in parts: each part is a separate operation, chained by its last block.

use bytes::Bytes;
use hsmux_token::ck::*;
use hsmux_token::{Blob, Mechanism, Params, Verb};

use super::length::AnswerLength;
use crate::rv::{Result, Rv};

/// The most that travels in one operation, in bytes: a multiple of every block.
const CHUNK: usize = 1 << 20;

/// Does one operation: a mechanism on some data.
pub type RunOperation<'a> = &'a dyn Fn(&Mechanism, Bytes) -> Result<Bytes>;

/// How one block follows another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockChaining {
    /// Not at all.
    Ecb,
    /// By the cipher text before it.
    Cbc,
    /// By a counter in the block's last so many bits.
    Ctr(u32),
}

/// A block cipher under way.
#[derive(Clone)]
pub struct Blocks {
    decrypts: bool,
    /// As the application gave it.
    whole: Mechanism,
    /// The mechanism of a part, which does not pad.
    part: CK_MECHANISM_TYPE,
    chain: BlockChaining,
    pads: bool,
    block: usize,
    /// The IV of the next part.
    iv: Vec<u8>,
    /// Blocks that may still be enciphered before a value of the counter comes again.
    left: u128,
    /// Taken and not yet enciphered: less than a block, or the last one that may hold the padding.
    pending: Vec<u8>,
}

impl Blocks {
    /// The cipher of a mechanism, if it can be done in parts.
    pub fn new(verb: Verb, mechanism: &Mechanism) -> Option<Self> {
        let (part, block, pads) = match mechanism.kind {
            CKM_AES_ECB | CKM_AES_CBC | CKM_AES_CTR => (mechanism.kind, 16, false),
            CKM_AES_CBC_PAD => (CKM_AES_CBC, 16, true),
            CKM_DES_ECB | CKM_DES_CBC | CKM_DES3_ECB | CKM_DES3_CBC => (mechanism.kind, 8, false),
            CKM_DES_CBC_PAD => (CKM_DES_CBC, 8, true),
            CKM_DES3_CBC_PAD => (CKM_DES3_CBC, 8, true),
            _ => return None,
        };
        let (chain, iv) = match &mechanism.params {
            Params::None => (BlockChaining::Ecb, Vec::new()),
            Params::Bytes(iv) => (BlockChaining::Cbc, iv.to_vec()),
            Params::Ctr { bits, block } => (
                BlockChaining::Ctr(u32::try_from(*bits).ok()?),
                block.to_vec(),
            ),
            _ => return None,
        };
        Some(Self {
            decrypts: verb == Verb::Decrypt,
            whole: mechanism.clone(),
            part,
            left: chain.blocks_from(&iv),
            chain,
            pads,
            block,
            iv,
            pending: Vec::new(),
        })
    }

    /// The mechanism of a part, which the key has to allow.
    pub fn part(&self) -> CK_MECHANISM_TYPE {
        self.part
    }

    /// Exactly how long the answer to a part is.
    pub fn update_len(&self, part: usize) -> usize {
        let total = self.pending.len() + part;
        let kept = match total % self.block {
            // The last block may be the padding.
            0 if self.pads && self.decrypts => self.block.min(total),
            rest => rest,
        };
        total - kept
    }

    /// Takes a part and gives what can be given.
    pub fn update(&mut self, part: &[u8], run: RunOperation) -> Result<Bytes> {
        self.check_counter(self.pending.len() + part.len())?;
        let now = self.update_len(part.len());
        let mut data = std::mem::take(&mut self.pending);
        data.extend_from_slice(part);
        self.pending = data.split_off(now);
        self.chunks(data.into(), run)
    }

    fn chunks(&mut self, mut data: Bytes, run: RunOperation) -> Result<Bytes> {
        if data.len() <= CHUNK {
            return self.step(data, run);
        }
        let mut out = Vec::with_capacity(data.len());
        while !data.is_empty() {
            let chunk = data.split_to(CHUNK.min(data.len()));
            out.extend_from_slice(&self.step(chunk, run)?);
        }
        Ok(out.into())
    }

    /// One operation, after which `iv` is that of the next.
    fn step(&mut self, data: Bytes, run: RunOperation) -> Result<Bytes> {
        if data.is_empty() {
            return Ok(data);
        }
        let out = run(&self.link(self.part), data.clone())?;
        match self.chain {
            BlockChaining::Ecb => {}
            BlockChaining::Cbc => {
                let cipher_text = if self.decrypts { &data } else { &out };
                let last = cipher_text.len().checked_sub(self.block);
                let last = last.ok_or(Rv(CKR_DEVICE_ERROR))?;
                self.iv = cipher_text[last..].to_vec();
            }
            BlockChaining::Ctr(bits) => {
                let blocks = data.len().div_ceil(self.block);
                advance(&mut self.iv, bits, blocks);
                self.left = self.left.saturating_sub(blocks as u128);
            }
        }
        Ok(out)
    }

    fn link(&self, kind: CK_MECHANISM_TYPE) -> Mechanism {
        let iv = || Blob(Bytes::copy_from_slice(&self.iv));
        let params = match self.chain {
            BlockChaining::Ecb => Params::None,
            BlockChaining::Cbc => Params::Bytes(iv()),
            BlockChaining::Ctr(bits) => Params::Ctr {
                bits: bits.into(),
                block: iv(),
            },
        };
        Mechanism { kind, params }
    }

    /// How long the answer to the end of the parts is.
    pub fn finish_length(&self) -> AnswerLength {
        match (self.pads, self.decrypts) {
            (true, true) => AnswerLength::AtMost(self.block),
            (true, false) => AnswerLength::Exact(self.block),
            (false, _) => AnswerLength::Exact(self.pending.len()),
        }
    }

    /// Gives the rest. May be called again, for the same answer.
    pub fn finish(&self, run: RunOperation) -> Result<Bytes> {
        let mut rest = self.pending.clone();
        match (self.chain, self.pads) {
            (_, true) if self.decrypts => {
                if rest.len() != self.block {
                    return Err(Rv(CKR_ENCRYPTED_DATA_LEN_RANGE));
                }
                // The token takes the padding off, and says so where it is none.
                return run(&self.link(self.whole.kind), rest.into());
            }
            (_, true) => {
                let missing = self.block - rest.len();
                rest.resize(self.block, missing as u8);
            }
            (BlockChaining::Ctr(_), false) => {}
            (_, false) if rest.is_empty() => {}
            (_, false) => return Err(Rv(self.length_error())),
        }
        if rest.is_empty() {
            return Ok(Bytes::new());
        }
        run(&self.link(self.part), rest.into())
    }

    /// How long the answer to all data at once is; an error where there can be none.
    pub fn whole_length(&self, len: usize) -> Result<AnswerLength> {
        self.check_counter(len)?;
        let is_even = len.is_multiple_of(self.block);
        match (self.pads, self.decrypts) {
            (true, true) if is_even && len > 0 => Ok(AnswerLength::AtMost(len)),
            (true, false) => Ok(AnswerLength::Exact((len / self.block + 1) * self.block)),
            (false, _) if is_even || matches!(self.chain, BlockChaining::Ctr(_)) => {
                Ok(AnswerLength::Exact(len))
            }
            _ => Err(Rv(self.length_error())),
        }
    }

    /// All data at once: in one operation, if it is not too much for one.
    pub fn whole(&self, data: &[u8], run: RunOperation) -> Result<Bytes> {
        if data.len() <= CHUNK {
            return run(&self.whole, Bytes::copy_from_slice(data));
        }
        let mut parts = self.clone();
        let first = parts.update(data, run)?;
        let rest = parts.finish(run)?;
        Ok([first, rest].concat().into())
    }

    /// Refuses data for which a value of the counter would come again (PKCS#11 3.0, section 6.11.5).
    fn check_counter(&self, len: usize) -> Result {
        if len.div_ceil(self.block) as u128 > self.left {
            return Err(Rv(CKR_DATA_LEN_RANGE));
        }
        Ok(())
    }

    fn length_error(&self) -> CK_RV {
        if self.decrypts {
            CKR_ENCRYPTED_DATA_LEN_RANGE
        } else {
            CKR_DATA_LEN_RANGE
        }
    }
}

impl BlockChaining {
    /// How many blocks can follow this one before it comes again, itself included; at most `u128::MAX`.
    fn blocks_from(self, block: &[u8]) -> u128 {
        match (self, counter(block)) {
            (Self::Ctr(bits), Some(value)) => {
                let counter = counter_mask(bits);
                (counter - (value & counter)).saturating_add(1)
            }
            _ => u128::MAX,
        }
    }
}

fn counter(block: &[u8]) -> Option<u128> {
    <[u8; 16]>::try_from(block).ok().map(u128::from_be_bytes)
}

fn counter_mask(bits: u32) -> u128 {
    u128::MAX
        .checked_shr(128_u32.saturating_sub(bits))
        .unwrap_or(0)
}

/// Adds to the counter in the last `bits` of a block; what is before it stays. After the last value it is 0,
/// from which nothing is enciphered.
fn advance(block: &mut [u8], bits: u32, blocks: usize) {
    let Some(value) = counter(block) else {
        return;
    };
    let counter = counter_mask(bits);
    let next = value.wrapping_add(blocks as u128) & counter;
    block.copy_from_slice(&(value & !counter | next).to_be_bytes());
}
