//! Parameters of handshakes: offers, trust and results.

use std::fmt;
use std::path::PathBuf;

use boring::error::ErrorStack;
use boring::pkey::Id;
use boring::ssl::{
    SslConnector, SslConnectorBuilder, SslMethod, SslRef, SslVerifyMode, SslVersion,
};
use hsmux_token::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

/// The client's offer; missing parameters are BoringSSL's defaults.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// The only version of TLS, in place of 1.2 and 1.3.
    pub version: Option<Version>,
    /// Groups of the key exchange, `X25519:P-256`.
    pub groups: Option<String>,
    /// Signature algorithms, `ecdsa_secp256r1_sha256:rsa_pss_rsae_sha256`.
    pub signatures: Option<String>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

impl std::str::FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "1.2" => Ok(Self::Tls12),
            "1.3" => Ok(Self::Tls13),
            other => Err(format!("{other:?} is neither 1.2 nor 1.3")),
        }
    }
}

/// The trusted certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those of the system's roots.
    System,
    /// Those of the roots in a PEM file.
    Roots(PathBuf),
    /// All, with any name: the server is not authenticated.
    Anybody,
}

/// The parameters of a handshake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsParameters {
    /// `TLSv1.3`.
    pub version: String,
    /// The cipher suite by its name.
    pub cipher: String,
    /// The group of the key exchange, if any.
    pub group: Option<String>,
    /// The algorithm of the server's signature.
    pub signature: Option<String>,
    /// The key of the server's certificate, `EC 256`.
    pub key: Option<String>,
    /// Whether the certificate was verified.
    pub verified: bool,
}

impl TlsParameters {
    pub(super) fn of(ssl: &SslRef, trust: &Trust) -> Self {
        let key = ssl.peer_certificate().and_then(|certificate| {
            let key = certificate.public_key().ok()?;
            let kind = match key.id() {
                Id::RSA => "RSA",
                Id::EC => "EC",
                _ => "other",
            };
            Some(format!("{kind} {}", key.bits()))
        });
        let signature = ssl.peer_signature_algorithm();
        Self {
            version: ssl.version_str().to_owned(),
            cipher: ssl
                .current_cipher()
                .map_or_else(String::new, |cipher| cipher.name().to_owned()),
            group: ssl.curve_name().map(str::to_owned),
            signature: signature.map(|algorithm| algorithm.to_string()),
            key,
            verified: *trust != Trust::Anybody,
        }
    }
}

impl fmt::Display for TlsParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.version, self.cipher)?;
        for part in [&self.group, &self.signature].into_iter().flatten() {
            write!(f, ", {part}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ", {key} certificate")?;
        }
        Ok(())
    }
}

/// The client's TLS context.
pub fn connector(offer: &Offer, trust: &Trust) -> Result<SslConnectorBuilder> {
    let mut builder = SslConnector::builder(SslMethod::tls()).map_err(|e| refused(&e))?;
    match trust {
        Trust::System => {}
        // BoringSSL would otherwise build a chain to the system's roots in vain.
        Trust::Anybody => builder.set_custom_verify_callback(SslVerifyMode::NONE, |_| Ok(())),
        Trust::Roots(file) => {
            let none = boring::x509::store::X509StoreBuilder::new().map_err(|e| refused(&e))?;
            builder.set_cert_store_builder(none);
            builder.set_ca_file(file).map_err(|e| {
                let message = format!("{}: {}", file.display(), first(&e));
                Error::pool(Kind::Environment, message)
            })?;
        }
    }
    let version = |version| match version {
        Version::Tls12 => SslVersion::TLS1_2,
        Version::Tls13 => SslVersion::TLS1_3,
    };
    let least = offer.version.map_or(SslVersion::TLS1_2, version);
    let most = offer.version.map_or(SslVersion::TLS1_3, version);
    builder
        .set_min_proto_version(Some(least))
        .map_err(|e| refused(&e))?;
    builder
        .set_max_proto_version(Some(most))
        .map_err(|e| refused(&e))?;
    if let Some(groups) = &offer.groups {
        let set = builder.set_curves_list(groups);
        set.map_err(|e| unknown("groups", groups, "X25519:P-256", &e))?;
    }
    if let Some(names) = &offer.signatures {
        let set = builder.set_sigalgs_list(names);
        let known = "ecdsa_secp256r1_sha256:rsa_pss_rsae_sha256";
        set.map_err(|e| unknown("signature algorithms", names, known, &e))?;
    }
    Ok(builder)
}

fn unknown(what: &str, given: &str, known: &str, error: &ErrorStack) -> Error {
    let why = first(error);
    let message = format!("{what} {given:?}: {why}; write them as in {known}");
    Error::request(Kind::Invalid, message)
}

/// The error of a BoringSSL call.
pub fn refused(error: &ErrorStack) -> Error {
    Error::pool(Kind::Environment, format!("TLS: {}", first(error)))
}

/// The first error of a stack: those below it belong to the same failure.
fn first(error: &ErrorStack) -> String {
    let reason = error.errors().first().and_then(|error| error.reason());
    reason.map_or_else(
        || error.to_string(),
        |reason| reason.to_lowercase().replace('_', " "),
    )
}
