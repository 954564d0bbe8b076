//! What a certificate says, and which ones are revoked.

use std::collections::HashSet;
use std::time::SystemTime;

use x509_cert::Certificate;
use x509_cert::crl::CertificateList;
use x509_cert::der::{Decode, DecodePem, Encode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// A serial number, in lower hexadecimal digits without leading zeros.
pub type Serial = String;

/// Whose certificate it is.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its first DNS name (subjectAltName), in lower case.
    pub name: String,
    /// Its serial number.
    pub serial: Serial,
    /// Until when it is good, in seconds of Unix time.
    pub until: u64,
}

impl Shown {
    /// Reads a certificate that has been verified.
    pub fn of(der: &[u8]) -> Result<Self, String> {
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
        })
    }

    /// Whether its time is over.
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

/// The serial numbers on a list of revoked certificates (RFC 5280, section 5).
pub fn revoked(der: &[u8]) -> Result<HashSet<Serial>, String> {
    let list = CertificateList::<x509_cert::certificate::Rfc5280>::from_der(der);
    let list = list.map_err(|e| format!("not a list of revoked certificates: {e}"))?;
    let revoked = list.tbs_cert_list.revoked_certificates;
    let revoked = revoked.iter().flatten();
    Ok(revoked
        .map(|revoked| serial(revoked.serial_number.as_bytes()))
        .collect())
}
