use hsmux_software::PublicKey;

use super::certificate::text;
use super::{Certificate, CvcError, signature, tag};
use crate::tlv::{Tlv, TlvError};

/// A certificate request: what GENERATE ASYMMETRIC KEY PAIR answers (TR-03110-3, appendix C.2).
///
/// The new key signs its own certificate (the inner signature: whoever asks has the key), and the device's
/// key signs the whole (the outer signature: the key was made in this card).
#[derive(Debug, Clone)]
pub struct CvcRequest {
    /// The certificate, signed by its own key.
    pub certificate: Certificate,
    /// The maker of the outer signature; nothing in a request without one.
    pub outer: Option<OuterSignature>,
}

/// The outer signature of a request.
#[derive(Debug, Clone)]
pub struct OuterSignature {
    /// The holder reference of the device's certificate.
    pub authority: String,
    signed: Vec<u8>,
    signature: Vec<u8>,
}

impl CvcRequest {
    /// Reads a request, with the outer signature or without.
    pub fn parse(bytes: &[u8]) -> Result<Self, CvcError> {
        let (outer, _) = Tlv::first(bytes)?;
        if outer.tag != tag::REQUEST {
            return Ok(Self {
                certificate: Certificate::parse(bytes)?,
                outer: None,
            });
        }
        let certificate = outer.child(tag::CERTIFICATE)?;
        let signature = match outer.child(tag::AUTHORITY) {
            Ok(authority) => Some(OuterSignature {
                authority: text("outer authority", authority)?,
                signed: [certificate.raw, authority.raw].concat(),
                signature: outer.child(tag::SIGNATURE)?.value.to_vec(),
            }),
            Err(TlvError::Missing(_)) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            certificate: Certificate::parse(certificate.raw)?,
            outer: signature,
        })
    }

    /// The inner signature: the request comes from whoever has the key.
    pub fn verify_inner(&self) -> Result<(), CvcError> {
        let key = &self.certificate.public_key;
        self.certificate
            .verify(&key.to_public_key()?, key.algorithm())
    }

    /// The outer signature: the key was made in the card whose certificate this is.
    pub fn verify_outer(&self, device: &Certificate) -> Result<(), CvcError> {
        let Some(outer) = &self.outer else {
            return Err(CvcError::Key("request without an outer signature"));
        };
        let key: PublicKey = device.public_key.to_public_key()?;
        let algorithm = device.public_key.algorithm();
        signature::verify(&key, algorithm, &outer.signed, &outer.signature)
    }
}
