//! Certificates and lists, signed.

use hsmux_token::{Error, Kind, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData,
    RevocationReason, RevokedCertParams, SerialNumber,
};
use time::{Duration, OffsetDateTime};
use zeroize::Zeroizing;

use super::key::AuthorityKey;
use super::ledger::Ledger;
use super::now;

/// Clocks of hosts differ: a certificate is valid from a little before its creation.
const BEFORE: u64 = 300;

/// A list is valid for a century: a missing new one must not lock out all hosts.
const LIST_LIFE: Duration = Duration::days(36_500);

/// The subject of a certificate.
pub struct Subject<'a> {
    /// Its name, the first of its DNS names.
    pub name: &'a str,
    /// Further DNS names and IP addresses.
    pub addresses: &'a [String],
    /// Never used twice.
    pub serial: [u8; 16],
    /// In seconds after 1970.
    pub until: u64,
}

/// An authority that can sign.
pub struct Issuer {
    params: CertificateParams,
    key: AuthorityKey,
}

impl Issuer {
    /// An issuer from this ledger and the authority's key.
    pub fn new(ledger: &Ledger, key: AuthorityKey) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(&ledger.authority);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = at(ledger.since.saturating_sub(BEFORE));
        params.not_after = at(ledger.until);
        Self { params, key }
    }

    /// Its own certificate, PEM.
    pub fn own_certificate(&self) -> Result<String> {
        let mut params = self.params.clone();
        params.serial_number = Some(SerialNumber::from_slice(&serial()?));
        let certificate = params.self_signed(&self.key);
        Ok(certificate.map_err(|e| self.refused(&e))?.pem())
    }

    /// A host's certificate, PEM, for both sides of a connection.
    pub fn certificate(&self, subject: &Subject<'_>, key: &impl PublicKeyData) -> Result<String> {
        let names =
            std::iter::once(subject.name.to_owned()).chain(subject.addresses.iter().cloned());
        let names: Vec<String> = names.collect();
        let mut params = CertificateParams::new(names).map_err(|e| refused(&e))?;
        params.distinguished_name = named(subject.name);
        params.serial_number = Some(SerialNumber::from_slice(&subject.serial));
        params.not_before = at(now().saturating_sub(BEFORE).min(subject.until));
        params.not_after = at(subject.until);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        let signed = params.signed_by(key, &self.signer());
        Ok(signed.map_err(|e| self.refused(&e))?.pem())
    }

    /// The revocation list, PEM.
    pub fn revoked(&self, ledger: &Ledger) -> Result<String> {
        let revoked = ledger.issued.iter().filter_map(|issued| {
            let serial = hex::decode(format!("{:0>32}", issued.serial)).ok()?;
            Some(RevokedCertParams {
                serial_number: SerialNumber::from_slice(&serial),
                revocation_time: at(issued.revoked?),
                reason_code: Some(RevocationReason::Unspecified),
                invalidity_date: None,
            })
        });
        let since = at(now().saturating_sub(BEFORE));
        let list = CertificateRevocationListParams {
            this_update: since,
            next_update: since + LIST_LIFE,
            crl_number: SerialNumber::from(ledger.lists),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let signed = list.signed_by(&self.signer());
        let signed = signed.map_err(|e| self.refused(&e))?;
        signed.pem().map_err(|e| refused(&e))
    }

    fn signer(&self) -> rcgen::Issuer<'_, &AuthorityKey> {
        rcgen::Issuer::from_params(&self.params, &self.key)
    }

    /// The reason of a failed signature: the token's, if it has one.
    fn refused(&self, error: &rcgen::Error) -> Error {
        self.key.failure().unwrap_or_else(|| refused(error))
    }
}

/// A new P-256 key, and its PEM (PKCS#8).
pub fn new_key() -> Result<(KeyPair, Zeroizing<String>)> {
    let key = KeyPair::generate().map_err(|e| refused(&e))?;
    let pem = Zeroizing::new(key.serialize_pem());
    Ok((key, pem))
}

/// A certificate request (PKCS#10, PEM), signed with the key.
pub fn request(name: &str, key: &KeyPair) -> Result<String> {
    let mut params = CertificateParams::new([name.to_owned()]).map_err(|e| refused(&e))?;
    params.distinguished_name = named(name);
    let request = params.serialize_request(key);
    request
        .and_then(|request| request.pem())
        .map_err(|e| refused(&e))
}

/// A random serial number: positive, and of 16 bytes (RFC 5280, section 4.1.2.2).
pub fn serial() -> Result<[u8; 16]> {
    let mut serial = [0; 16];
    getrandom::fill(&mut serial)
        .map_err(|e| Error::pool(Kind::Environment, format!("no random bytes: {e}")))?;
    serial[0] = serial[0] & 0x3f | 0x40;
    Ok(serial)
}

fn named(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}

/// At most the year 9999 (RFC 5280, section 4.1.2.5).
fn at(seconds: u64) -> OffsetDateTime {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let last = time::macros::datetime!(9999-12-31 23:59:59 UTC);
    OffsetDateTime::from_unix_timestamp(seconds).map_or(last, |time| time.min(last))
}

fn refused(error: &rcgen::Error) -> Error {
    Error::request(
        Kind::Invalid,
        format!("the certificate cannot be made: {error}"),
    )
}
