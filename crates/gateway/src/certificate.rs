//! Certificates and their keys, from files and from the pool.

use std::path::Path;

use boring::asn1::Asn1Time;
use boring::pkey::{PKey, Private};
use boring::x509::X509;
use hsmux_config::{Certificate, ObjectSource};
use hsmux_pool::Pool;
use hsmux_software::PublicKey;
use hsmux_token::permissions::SecretReaders;
use hsmux_token::{Class, Error, KeyKind, Kind, Object, ObjectId, Result, Uri, ck};

/// A certificate with its key.
pub struct Credential {
    /// The certificate, then its issuers.
    pub chain: Vec<X509>,
    /// Its public key.
    pub public: PublicKey,
    /// Its private key.
    pub key: CertificateKey,
    /// Its OCSP response.
    pub ocsp: Option<Vec<u8>>,
    /// Its file or URI, for messages.
    pub name: String,
}

/// A private key.
pub enum CertificateKey {
    /// In the pool.
    Pool(ObjectId),
    /// In this process, from a file.
    File(PKey<Private>),
}

impl Credential {
    /// Reads a certificate and finds its key. If they do not match, the error names both.
    pub fn read(given: &Certificate, pool: &Pool, small_rsa: bool) -> Result<Self> {
        let (name, chain) = match &given.chain {
            ObjectSource::File(file) => (file.display().to_string(), chain(file)?),
            ObjectSource::Pool(uri) => (uri.to_string(), vec![of_pool(uri, pool)?]),
        };
        let der = chain[0].to_der().map_err(|e| wrong(&name, e))?;
        let public = PublicKey::from_certificate(&der).map_err(|e| wrong(&name, e))?;
        match (public.kind(), public.bits()) {
            (KeyKind::Ec, 256 | 384) => {}
            (KeyKind::Rsa, bits) if bits >= 2048 || small_rsa => {}
            (KeyKind::Rsa, bits) => {
                let message = format!(
                    "its key is RSA-{bits}, which can be broken; take a longer one, \
                     or allow it for measuring: allow_rsa_1024 = true"
                );
                return Err(wrong(&name, message));
            }
            _ => {
                return Err(wrong(
                    &name,
                    "its key is neither RSA nor EC on P-256 or P-384",
                ));
            }
        }
        Ok(Self {
            key: key(given.key.as_ref(), &name, &public, pool)?,
            ocsp: given.ocsp.as_deref().map(read).transpose()?,
            chain,
            public,
            name,
        })
    }

    /// When it expires, in seconds of Unix time.
    pub fn expires(&self) -> i64 {
        let epoch = Asn1Time::from_unix(0);
        let since = epoch.and_then(|epoch| epoch.diff(self.chain[0].not_after()));
        since.map_or(0, |since| {
            i64::from(since.days) * 86_400 + i64::from(since.secs)
        })
    }
}

fn key(
    given: Option<&ObjectSource>,
    name: &str,
    public: &PublicKey,
    pool: &Pool,
) -> Result<CertificateKey> {
    let own = ObjectId::of_public_key(Class::PRIVATE_KEY, public.spki());
    match given {
        None => Ok(CertificateKey::Pool(own)),
        Some(ObjectSource::Pool(uri)) => {
            let found = matching(uri, pool);
            if found.is_empty() {
                tracing::warn!(
                    "{name}: no key {uri} is in the pool now; handshakes fail until it is there"
                );
            } else if found.iter().all(|object| object.id != own) {
                return Err(mismatch(name, uri));
            }
            Ok(CertificateKey::Pool(own))
        }
        Some(ObjectSource::File(file)) => {
            let shown = file.display();
            let pem = SecretReaders::Group.read(file);
            let pem = pem.map_err(|e| wrong(&shown, e))?;
            let key = PKey::private_key_from_pem(&pem).map_err(|_| {
                wrong(
                    &shown,
                    "no private key in PEM that can be read without a passphrase",
                )
            })?;
            let of_key = key.public_key_to_der().map_err(|e| wrong(&shown, e))?;
            if of_key != public.spki() {
                return Err(mismatch(name, shown));
            }
            Ok(CertificateKey::File(key))
        }
    }
}

fn mismatch(name: &str, key: impl std::fmt::Display) -> Error {
    let message =
        format!("its public key is not that of the key {key}: they do not belong together");
    wrong(name, message)
}

fn matching(uri: &Uri, pool: &Pool) -> Vec<Object> {
    let catalogue = pool.catalogue();
    let objects = catalogue.snapshot().objects.iter();
    objects
        .filter(|object| uri.matches_object(object))
        .cloned()
        .collect()
}

/// The only object of the pool that matches a URI.
pub fn the_one(uri: &Uri, pool: &Pool) -> Result<Object, String> {
    let mut found = matching(uri, pool);
    match (found.pop(), found.len()) {
        (Some(object), 0) => Ok(object),
        (None, _) => Err("nothing like that is in the pool".into()),
        (Some(_), others) => Err(format!(
            "{} objects match: name one by object= and id=",
            others + 1
        )),
    }
}

fn of_pool(uri: &Uri, pool: &Pool) -> Result<X509> {
    let object = the_one(uri, pool).map_err(|why| wrong(uri, why))?;
    let der = object.attributes.get(ck::CKA_VALUE).unwrap_or_default();
    X509::from_der(der).map_err(|e| wrong(uri, e))
}

/// All certificates of a file, at least one.
pub fn chain(file: &Path) -> Result<Vec<X509>> {
    let chain = X509::stack_from_pem(&read(file)?).map_err(|e| wrong(file.display(), e))?;
    if chain.is_empty() {
        return Err(wrong(file.display(), "there is no certificate in it"));
    }
    Ok(chain)
}

fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).map_err(|e| wrong(file.display(), e))
}

/// An error of a site's configuration, with its subject.
pub fn wrong(what: impl std::fmt::Display, why: impl std::fmt::Display) -> Error {
    Error::pool(Kind::Environment, format!("[[site]] {what}: {why}"))
}
