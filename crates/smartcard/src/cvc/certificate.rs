use hsmux_software::PublicKey;

use super::{CvPublicKey, CvcError, signature, tag};
use crate::tlv::{Tlv, TlvError};

/// A card verifiable certificate (TR-03110-3, appendix C.1).
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The holder of the key that signed it; some requests do not say it.
    pub authority: Option<String>,
    /// The holder of the key.
    pub holder: String,
    /// The key.
    pub public_key: CvPublicKey,
    body: Vec<u8>,
    signature: Vec<u8>,
}

/// The sequence number at the end of a reference: two letters or digits and three, five in all.
const SEQUENCE: usize = 5;

impl Certificate {
    /// The first certificate of these bytes; what follows is not looked at.
    pub fn parse(bytes: &[u8]) -> Result<Self, CvcError> {
        let (outer, _) = Tlv::first(bytes)?;
        if outer.tag != tag::CERTIFICATE {
            return Err(TlvError::Missing(tag::CERTIFICATE).into());
        }
        let body = outer.child(tag::BODY)?;
        let authority = match body.child(tag::AUTHORITY) {
            Ok(authority) => Some(text("authority", authority)?),
            Err(TlvError::Missing(_)) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            authority,
            holder: text("holder", body.child(tag::HOLDER)?)?,
            public_key: CvPublicKey::parse(body.child(tag::PUBLIC_KEY)?)?,
            body: body.raw.to_vec(),
            signature: outer.child(tag::SIGNATURE)?.value.to_vec(),
        })
    }

    /// The certificates one after the other, as EF 2F02 has them: the device's, then its issuer's.
    pub fn parse_all(bytes: &[u8]) -> Result<Vec<Self>, CvcError> {
        crate::tlv::values(bytes)
            // The rest of an older, longer content is not part of it.
            .take_while(|value| value.is_ok_and(|value| value.tag == tag::CERTIFICATE))
            .map(|value| Self::parse(value?.raw))
            .collect()
    }

    /// The card's serial number: the holder reference without its sequence number.
    pub fn serial(&self) -> &str {
        let end = self.holder.len().saturating_sub(SEQUENCE);
        self.holder.get(..end).unwrap_or(&self.holder)
    }

    /// Was this signed by the owner of `issuer`, with `algorithm` as the issuer's certificate names it?
    pub fn verify(&self, issuer: &PublicKey, algorithm: &[u8]) -> Result<(), CvcError> {
        signature::verify(issuer, algorithm, &self.body, &self.signature)
    }
}

pub(super) fn text(what: &'static str, value: Tlv<'_>) -> Result<String, CvcError> {
    let text = std::str::from_utf8(value.value).map_err(|_| CvcError::NotText(what))?;
    Ok(text.to_owned())
}
