//! Card verifiable certificates and requests (TR-03110-3, appendix C): the card's own, and the public
//! halves of the keys that it makes.

use hsmux_software::PublicKey;

mod certificate;
mod public_key;
mod request;
mod signature;
pub mod tag;

pub use certificate::Certificate;
pub use public_key::CvPublicKey;
pub use request::CvcRequest;

use crate::tlv::TlvError;

/// The error of a certificate or a request.
#[derive(Debug, thiserror::Error)]
pub enum CvcError {
    /// Its form.
    #[error("not a card verifiable certificate: {0}")]
    Form(#[from] TlvError),
    /// A name that is not text.
    #[error("a card verifiable certificate whose {0} reference is not text")]
    NotText(&'static str),
    /// The key cannot be known from it alone.
    #[error("a card verifiable certificate {0}")]
    Key(&'static str),
    /// The signature algorithm, or the curve.
    #[error("a card verifiable certificate signed by {0}, which is not known here")]
    Algorithm(String),
    /// The signature does not belong to the content and the key; or the key cannot verify here.
    #[error("the signature of a card verifiable certificate: {0}")]
    Signature(#[from] hsmux_token::Error),
    /// It does not begin as any certificate or request does.
    #[error("neither a certificate nor a request: it begins with {0:02X?}")]
    Unknown(Option<u8>),
}

/// The public key that a key's certificate file tells: a request as the card made it, a card verifiable
/// certificate, or an X.509 certificate that somebody has put there.
pub fn public_key_of(file: &[u8]) -> Result<PublicKey, CvcError> {
    match file.first() {
        Some(0x67) => CvcRequest::parse(file)?
            .certificate
            .public_key
            .to_public_key(),
        Some(0x7F) => Certificate::parse(file)?.public_key.to_public_key(),
        Some(0x30) => Ok(PublicKey::from_certificate(file)?),
        first => Err(CvcError::Unknown(first.copied())),
    }
}
