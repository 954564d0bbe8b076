//! Contents of certificates and of their revocation lists.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use hsmux_software::revocation::ParsedCrl;
use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::{Decode, DecodePem, Encode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// A serial number, in lower hexadecimal digits without leading zeros.
pub type Serial = String;

/// The certificate that a peer has shown.
#[derive(Clone, Debug)]
pub struct PeerCertificate {
    /// Its first DNS name (subjectAltName), in lower case.
    pub name: String,
    /// Its serial number.
    pub serial: Serial,
    /// The end of its validity, in seconds of Unix time.
    pub until: u64,
    /// The certificate.
    pub der: CertificateDer<'static>,
    /// The intermediate certificates that came with it.
    pub others: Arc<[CertificateDer<'static>]>,
}

impl PeerCertificate {
    /// Reads the first certificate of a verified chain.
    pub fn of(chain: &[CertificateDer<'static>]) -> Result<Self, String> {
        let (der, others) = chain.split_first().ok_or("no certificate")?;
        let read = Certificate::from_der(der).map_err(|e| format!("a certificate: {e}"))?;
        let certificate = read.tbs_certificate();
        let names = certificate
            .get_extension::<SubjectAltName>()
            .map_err(|e| format!("the names of a certificate: {e}"))?;
        let names = names.map_or_else(Vec::new, |(_, names)| names.0);
        let name = names.iter().find_map(|name| match name {
            GeneralName::DnsName(name) => Some(name.to_string().to_ascii_lowercase()),
            _ => None,
        });
        Ok(Self {
            name: name.ok_or("a certificate without a DNS name")?,
            serial: serial(certificate.serial_number().as_bytes()),
            until: certificate
                .validity()
                .not_after
                .to_unix_duration()
                .as_secs(),
            der: der.clone(),
            others: others.into(),
        })
    }

    /// True if it has expired.
    pub fn has_expired(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.is_ok_and(|now| now.as_secs() > self.until)
    }
}

/// The public key of a certificate in PEM, as its SubjectPublicKeyInfo (DER).
pub fn public_key(pem: &[u8]) -> Result<Vec<u8>, String> {
    let read = Certificate::from_pem(pem).map_err(|e| format!("a certificate: {e}"))?;
    let key = read.tbs_certificate().subject_public_key_info();
    key.to_der().map_err(|e| format!("its key: {e}"))
}

/// The written form of a serial number.
pub fn serial(bytes: &[u8]) -> Serial {
    let digits = hex::encode(bytes);
    digits.trim_start_matches('0').to_owned()
}

/// Reads a revocation list (RFC 5280, section 5) that TLS can use: it reads no lists of version 1.
pub fn list(der: &[u8]) -> Result<ParsedCrl, String> {
    let list = ParsedCrl::read(der)?;
    match list.version {
        2 => Ok(list),
        version => Err(format!(
            "it is a list of version {version}: version 2 is needed"
        )),
    }
}

/// The serial numbers on a revocation list.
pub fn revoked(der: &[u8]) -> Result<HashSet<Serial>, String> {
    let serials = list(der)?.serials;
    Ok(serials.iter().map(|bytes| serial(bytes)).collect())
}
