//! A list as it was written (RFC 5280, section 5.1), whoever has signed it.

use std::collections::HashSet;
use std::time::Duration;

use der::asn1::{AnyRef, BitString, ObjectIdentifier, Uint};
use der::{Decode, Encode, Sequence};
use spki::AlgorithmIdentifierOwned;
use x509_cert::crl::RevokedCert;
use x509_cert::ext::Extensions;
use x509_cert::name::Name;
use x509_cert::time::Time;

/// CRLNumber (section 5.2.3).
const NUMBER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.20");

/// A list and who has signed it. The types of `x509_cert` have no lists of version 1, which OpenSSL makes.
#[derive(Sequence)]
struct CertificateList<'a> {
    body: AnyRef<'a>,
    algorithm: AlgorithmIdentifierOwned,
    signature: BitString,
}

/// The signed part (RFC 5280, section 5.1).
#[derive(Sequence)]
struct TbsCertList {
    version: Option<u8>,
    algorithm: AlgorithmIdentifierOwned,
    issuer: Name,
    this_update: Time,
    next_update: Option<Time>,
    revoked: Option<Vec<RevokedCert>>,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", optional = "true")]
    extensions: Option<Extensions>,
}

/// The content of a list. It is untrusted until the signature is verified.
pub struct ParsedCrl {
    /// The signed part (DER).
    pub signed: Vec<u8>,
    /// The signature algorithm (AlgorithmIdentifier, DER).
    pub algorithm: Vec<u8>,
    /// The signature, as X.509 writes it.
    pub signature: Vec<u8>,
    /// 1 or 2.
    pub version: u8,
    /// True if the whole list is DER: only that form is signed.
    pub is_der: bool,
    /// The authority's name (DER).
    pub issuer: Vec<u8>,
    /// The same to be read.
    pub issuer_name: String,
    /// When it was made (thisUpdate), after 1970.
    pub since: Duration,
    /// From when on it says nothing any more (nextUpdate), after 1970.
    pub until: Option<Duration>,
    /// The numbers of revoked certificates, without leading zeros.
    pub serials: HashSet<Vec<u8>>,
    /// True if it may be a part of a list: it has a critical extension (sections 5.2.4 and 5.2.5).
    pub is_part: bool,
    number: Option<Vec<u8>>,
}

impl ParsedCrl {
    /// Reads a list (DER).
    pub fn read(der: &[u8]) -> Result<Self, String> {
        Self::try_read(der).map_err(|e| format!("it is no certificate revocation list: {e}"))
    }

    fn try_read(der: &[u8]) -> der::Result<Self> {
        let whole = CertificateList::from_der(der)?;
        let signed = whole.body.to_der()?;
        let body = TbsCertList::from_der(&signed)?;
        let is_der = whole.to_der()? == der && body.to_der()? == signed;
        let mut extensions = body.extensions.iter().flatten();
        let is_part = extensions.clone().any(|extension| extension.critical);
        let number = extensions.find(|extension| extension.extn_id == NUMBER);
        let revoked = body.revoked.iter().flatten();
        Ok(Self {
            algorithm: whole.algorithm.to_der()?,
            signature: whole.signature.as_bytes().unwrap_or_default().to_vec(),
            version: body.version.map_or(1, |version| version.saturating_add(1)),
            is_der,
            issuer: body.issuer.to_der()?,
            issuer_name: body.issuer.to_string(),
            since: body.this_update.to_unix_duration(),
            until: body.next_update.map(Time::to_unix_duration),
            serials: revoked
                .map(|one| number_of(one.serial_number.as_bytes()).to_vec())
                .collect(),
            is_part,
            number: number.map(|number| number.extn_value.as_bytes().to_vec()),
            signed,
        })
    }

    /// The list's own number, which grows from list to list (section 5.2.3).
    pub fn number(&self) -> Result<Option<Vec<u8>>, String> {
        let number = self.number.as_deref().map(Uint::from_der).transpose();
        let number = number.map_err(|e| format!("its number: {e}"))?;
        Ok(number.map(|number| number.as_bytes().to_vec()))
    }
}

/// A serial number without leading zeros.
pub(super) fn number_of(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros..]
}
