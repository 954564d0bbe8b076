//! AES-256.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use hsmux_token::ck::*;
use sha2::{Digest, Sha256};

/// A key, and its block cipher.
pub struct Aes(Aes256);

type Block = [u8; 16];

impl Aes {
    pub(super) fn of(seed: u64) -> Self {
        let key = Sha256::new()
            .chain_update("hsmux-standin AES-256")
            .chain_update(seed.to_be_bytes())
            .finalize();
        let key: [u8; 32] = key.into();
        Self(Aes256::new(&Array(key)))
    }

    /// CKA_CHECK_VALUE.
    pub fn check_value(&self) -> [u8; 3] {
        let block = self.encrypt_block([0; 16]);
        [block[0], block[1], block[2]]
    }

    /// CKM_AES_ECB, CKM_AES_CBC or CKM_AES_CBC_PAD; `iv` is zero for ECB.
    pub fn encrypt(&self, mechanism: u64, iv: Block, data: &[u8]) -> Result<Vec<u8>, CK_RV> {
        let mut data = data.to_vec();
        if mechanism == CKM_AES_CBC_PAD {
            let padding = 16 - data.len() % 16;
            data.resize(data.len() + padding, padding as u8);
        }
        let mut last = iv;
        for block in blocks(&mut data, CKR_DATA_LEN_RANGE)? {
            if mechanism != CKM_AES_ECB {
                xor(block, &last);
            }
            *block = self.encrypt_block(*block);
            last = *block;
        }
        Ok(data)
    }

    /// The reverse.
    pub fn decrypt(&self, mechanism: u64, iv: Block, text: &[u8]) -> Result<Vec<u8>, CK_RV> {
        let mut data = text.to_vec();
        let mut last = iv;
        for block in blocks(&mut data, CKR_ENCRYPTED_DATA_LEN_RANGE)? {
            let text = *block;
            *block = self.decrypt_block(text);
            if mechanism != CKM_AES_ECB {
                xor(block, &last);
            }
            last = text;
        }
        if mechanism == CKM_AES_CBC_PAD {
            let padding = data.last().map_or(0, |last| usize::from(*last));
            if !(1..=16).contains(&padding) || padding > data.len() {
                return Err(CKR_ENCRYPTED_DATA_INVALID);
            }
            data.truncate(data.len() - padding);
        }
        Ok(data)
    }

    fn encrypt_block(&self, block: Block) -> Block {
        let mut block = Array(block);
        self.0.encrypt_block(&mut block);
        block.0
    }

    fn decrypt_block(&self, block: Block) -> Block {
        let mut block = Array(block);
        self.0.decrypt_block(&mut block);
        block.0
    }
}

fn blocks(data: &mut [u8], otherwise: CK_RV) -> Result<&mut [Block], CK_RV> {
    match data.as_chunks_mut() {
        (blocks, []) => Ok(blocks),
        _ => Err(otherwise),
    }
}

fn xor(block: &mut Block, with: &Block) {
    for (byte, other) in block.iter_mut().zip(with) {
        *byte ^= other;
    }
}
