use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::curve::Curve;
use crate::cvc::tag;
use crate::error::CardError;
use crate::file::KeyReference;
use crate::tlv::tlv;

/// A key pair to be made.
#[derive(Debug, Clone)]
pub struct KeyPair {
    /// RSA or on a curve.
    pub kind: KeyPairKind,
    /// The holder of the key, for the request that the card answers: the serial number and a sequence number of five
    /// digits.
    pub holder: String,
    /// The allowed algorithms, as bytes; an empty list allows everything.
    pub algorithms: Vec<u8>,
    /// How often the key may be used; for ever if nothing is said.
    pub use_counter: Option<u32>,
}

/// The family of a key pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPairKind {
    /// RSA with a modulus of so many bits (1024, 1536, 2048, 3072, 4096), exponent 65537.
    Rsa {
        /// Size of the modulus.
        bits: u16,
    },
    /// On a curve, whose numbers are sent along.
    Ec(&'static Curve),
}

const NAME: &str = "GENERATE ASYMMETRIC KEY PAIR";
/// The issuer that OpenSC names in a request; cards from version 2 take their own.
const AUTHORITY: &[u8] = b"UTCA00001";
/// id-TA-RSA-v1-5-SHA-256 and id-TA-ECDSA-SHA-256 (TR-03110-3, appendix A.7.3).
const RSA_SHA256: &[u8] = &[4, 0, 127, 0, 7, 2, 2, 2, 1, 2];
const ECDSA_SHA256: &[u8] = &[4, 0, 127, 0, 7, 2, 2, 2, 2, 3];

impl KeyPair {
    /// A key pair for a card with this serial number, without limits to its use.
    pub fn new(kind: KeyPairKind, serial: &str) -> Self {
        Self {
            kind,
            holder: format!("{serial}00001"),
            algorithms: Vec::new(),
            use_counter: None,
        }
    }

    /// The body of a certificate, with what the key is to be in place of the key (TR-03110-3, appendix C.1).
    fn body(&self) -> Vec<u8> {
        let key = match self.kind {
            KeyPairKind::Rsa { bits } => tlv(
                tag::PUBLIC_KEY,
                &[
                    &tlv(tag::OBJECT_IDENTIFIER, &[RSA_SHA256]),
                    &tlv(tag::EXPONENT, &[&[1, 0, 1]]),
                    &tlv(tag::INTEGER, &[&bits.to_be_bytes()]),
                ],
            ),
            KeyPairKind::Ec(curve) => tlv(
                tag::PUBLIC_KEY,
                &[
                    &tlv(tag::OBJECT_IDENTIFIER, &[ECDSA_SHA256]),
                    &tlv(tag::PRIME, &[curve.prime]),
                    &tlv(tag::COEFFICIENT_A, &[curve.a]),
                    &tlv(tag::COEFFICIENT_B, &[curve.b]),
                    &tlv(tag::GENERATOR, &[curve.generator]),
                    &tlv(tag::ORDER, &[curve.order]),
                    &tlv(tag::COFACTOR, &[&[1]]),
                ],
            ),
        };
        let counter = self
            .use_counter
            .map(|counter| tlv(0x90, &[&counter.to_be_bytes()]));
        let algorithms = (!self.algorithms.is_empty()).then(|| tlv(0x91, &[&self.algorithms]));
        [
            tlv(tag::PROFILE, &[&[0]]),
            tlv(tag::AUTHORITY, &[AUTHORITY]),
            key,
            tlv(tag::HOLDER, &[self.holder.as_bytes()]),
            counter.unwrap_or_default(),
            algorithms.unwrap_or_default(),
        ]
        .concat()
    }
}

impl<C: CardChannel> Card<C> {
    /// Makes a key pair, and answers the certificate request with its public half:
    /// [`CvcRequest`](crate::cvc::CvcRequest) reads it (ISO/IEC 7816-8, section 11.3; OpenSC
    /// `sc_hsm_generate_keypair`).
    ///
    /// A card needs seconds for an EC key and up to minutes for RSA with 4096 bits. sc-hsm-embedded expects that the
    /// card keeps the request as the certificate of the key, OpenSC writes it: [`keep_request`](Self::keep_request).
    pub fn generate_key_pair(
        &mut self,
        key: KeyReference,
        pair: &KeyPair,
    ) -> Result<Vec<u8>, CardError> {
        let command = CommandApdu::new(0x00, instruction::GENERATE_KEY_PAIR, key.0, 0x00)
            .with_data(pair.body())
            .expecting(self.max_answer());
        Ok(self.run(NAME, command)?.to_vec())
    }

    /// Writes the request of a new key to the file where programs look for its public half.
    pub fn keep_request(&mut self, key: KeyReference, request: &[u8]) -> Result<(), CardError> {
        self.replace_file(key.file(crate::FileKind::Certificate), request)
    }
}
