use zeroize::Zeroizing;

use super::AesAlgorithm;
use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::file::KeyReference;
use crate::secret::joined;

const NAME: &str = "SYMMETRIC CIPHER";
const BLOCK: usize = 16;

impl<C: CardChannel> Card<C> {
    /// AES-CBC of whole blocks. The card always begins with an IV of zeros: another is worked in here, and
    /// data of any length are chained.
    pub fn cbc_encrypt(
        &mut self,
        key: KeyReference,
        iv: &[u8; 16],
        plaintext: &[u8],
    ) -> Result<Vec<u8>, CardError> {
        whole_blocks(plaintext)?;
        let mut chain = *iv;
        let mut ciphertext = Vec::with_capacity(plaintext.len());
        for part in plaintext.chunks(self.cbc_chunk()) {
            let mut part = joined(&[part]);
            xor(&mut part, &chain);
            let out = self.cbc(key, AesAlgorithm::CbcEncrypt, part)?;
            chain.copy_from_slice(&out[out.len() - BLOCK..]);
            ciphertext.extend_from_slice(&out);
        }
        Ok(ciphertext)
    }

    /// The reverse of [`cbc_encrypt`](Self::cbc_encrypt).
    pub fn cbc_decrypt(
        &mut self,
        key: KeyReference,
        iv: &[u8; 16],
        ciphertext: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, CardError> {
        whole_blocks(ciphertext)?;
        let mut chain = &iv[..];
        let mut plaintext = Zeroizing::new(Vec::with_capacity(ciphertext.len()));
        for part in ciphertext.chunks(self.cbc_chunk()) {
            let mut out = self.cbc(key, AesAlgorithm::CbcDecrypt, joined(&[part]))?;
            xor(&mut out, chain);
            chain = &part[part.len() - BLOCK..];
            plaintext.extend_from_slice(&out);
        }
        Ok(plaintext)
    }

    /// The 16 bytes of an AES-CMAC (SP 800-38B), of as much data as one command holds.
    pub fn cmac(&mut self, key: KeyReference, data: &[u8]) -> Result<[u8; 16], CardError> {
        let mac = self.symmetric(key, AesAlgorithm::Cmac, joined(&[data]))?;
        mac.as_slice()
            .try_into()
            .map_err(|_| self.bad_answer(NAME, "a MAC of the wrong length"))
    }

    /// A secret of 32 bytes derived from the key and a parameter (SP 800-56C).
    pub fn derive(
        &mut self,
        key: KeyReference,
        parameter: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, CardError> {
        self.symmetric(key, AesAlgorithm::Derive, joined(&[parameter]))
    }

    fn cbc(
        &mut self,
        key: KeyReference,
        algorithm: AesAlgorithm,
        blocks: Zeroizing<Vec<u8>>,
    ) -> Result<Zeroizing<Vec<u8>>, CardError> {
        let len = blocks.len();
        let out = self.symmetric(key, algorithm, blocks)?;
        if out.len() == len {
            Ok(out)
        } else {
            Err(self.bad_answer(NAME, format!("{} bytes for {len}", out.len())))
        }
    }

    fn symmetric(
        &mut self,
        key: KeyReference,
        algorithm: AesAlgorithm,
        data: Zeroizing<Vec<u8>>,
    ) -> Result<Zeroizing<Vec<u8>>, CardError> {
        let ne = data.len().max(256).min(self.max_answer());
        let mut command =
            CommandApdu::new(0x80, instruction::SYMMETRIC, key.0, algorithm as u8).expecting(ne);
        command.data = data;
        self.run(NAME, command)
    }

    /// Whole blocks that fit into one command.
    fn cbc_chunk(&self) -> usize {
        self.max_data() / BLOCK * BLOCK
    }
}

fn whole_blocks(data: &[u8]) -> Result<(), CardError> {
    if data.len().is_multiple_of(BLOCK) {
        return Ok(());
    }
    let what = format!(
        "{} bytes are not whole blocks of 16: pad them first",
        data.len()
    );
    Err(CardError::invalid(NAME, what))
}

fn xor(data: &mut [u8], with: &[u8]) {
    for (byte, other) in data.iter_mut().zip(with) {
        *byte ^= other;
    }
}
