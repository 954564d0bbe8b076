use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::file::KeyReference;

/// How a card signs, and what it is given to sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SignAlgorithm {
    /// RSA of a block as long as the modulus, padded by the caller.
    RsaRaw = 0x20,
    /// RSA PKCS#1 v1.5 of a DigestInfo.
    RsaPkcs1 = 0x30,
    /// RSA PKCS#1 v1.5 with SHA-1, of the data.
    RsaPkcs1Sha1 = 0x31,
    /// RSA PKCS#1 v1.5 with SHA-224, of the data.
    RsaPkcs1Sha224 = 0x32,
    /// RSA PKCS#1 v1.5 with SHA-256, of the data.
    RsaPkcs1Sha256 = 0x33,
    /// RSA PKCS#1 v1.5 with SHA-384, of the data.
    RsaPkcs1Sha384 = 0x34,
    /// RSA PKCS#1 v1.5 with SHA-512, of the data.
    RsaPkcs1Sha512 = 0x35,
    /// RSA PSS of a hash (sc-hsm-embedded) or a DigestInfo (OpenSC).
    RsaPss = 0x40,
    /// RSA PSS with SHA-1, of the data.
    RsaPssSha1 = 0x41,
    /// RSA PSS with SHA-224, of the data.
    RsaPssSha224 = 0x42,
    /// RSA PSS with SHA-256, of the data.
    RsaPssSha256 = 0x43,
    /// RSA PSS with SHA-384, of the data.
    RsaPssSha384 = 0x44,
    /// RSA PSS with SHA-512, of the data.
    RsaPssSha512 = 0x45,
    /// ECDSA of a hash.
    Ecdsa = 0x70,
    /// ECDSA with SHA-1, of the data.
    EcdsaSha1 = 0x71,
    /// ECDSA with SHA-224, of the data.
    EcdsaSha224 = 0x72,
    /// ECDSA with SHA-256, of the data.
    EcdsaSha256 = 0x73,
    /// ECDSA with SHA-384, of the data.
    EcdsaSha384 = 0x74,
    /// ECDSA with SHA-512, of the data.
    EcdsaSha512 = 0x75,
}

const NAME: &str = "SIGN";

impl<C: CardChannel> Card<C> {
    /// Signs. RSA answers as many bytes as the modulus has, ECDSA the DER of r and s, which
    /// [`ecdsa_fixed`](crate::ecdsa_fixed) turns into what PKCS#11 has (OpenSC `sc_hsm_compute_signature`).
    pub fn sign(
        &mut self,
        key: KeyReference,
        algorithm: SignAlgorithm,
        data: &[u8],
    ) -> Result<Vec<u8>, CardError> {
        let command = CommandApdu::new(0x80, instruction::SIGN, key.0, algorithm as u8)
            .with_data(data)
            .expecting(512);
        Ok(self.run(NAME, command)?.to_vec())
    }
}
