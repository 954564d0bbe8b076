//! The key of an authority, in a file or in a token.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_software::{PublicKey, csr};
use hsmux_token::{Class, Error, Kind, Mechanism, ObjectId, Result, Token, Uri};
use parking_lot::Mutex;
use rcgen::{KeyPair, PublicKeyData, SignatureAlgorithm, SigningKey};

use super::public::PublicHalf;

/// The time limit of a signature: a card may be busy with the pool's work, and RSA takes its time there.
const SIGN_WITHIN: Duration = Duration::from_secs(60);

/// The key of an authority.
pub enum AuthorityKey {
    /// From a file.
    File(KeyPair),
    /// In a token.
    Token(TokenKey),
}

/// A private key in a token, with its public half.
pub struct TokenKey {
    token: Arc<dyn Token>,
    id: ObjectId,
    public: PublicKey,
    mechanism: Mechanism,
    half: PublicHalf,
    /// The token's error, which the library's errors have no room for.
    failure: Mutex<Option<Error>>,
}

impl AuthorityKey {
    /// The token's error, if it has not signed.
    pub fn failure(&self) -> Option<Error> {
        match self {
            Self::File(_) => None,
            Self::Token(key) => key.failure.lock().take(),
        }
    }
}

impl TokenKey {
    /// The one private key of the token that matches the URI.
    pub fn find(token: Arc<dyn Token>, uri: &Uri) -> Result<Self> {
        let objects = token.objects()?;
        let mut keys = objects
            .objects
            .iter()
            .filter(|object| object.id.class == Class::PRIVATE_KEY && uri.matches_object(object));
        let key = match (keys.next(), keys.next()) {
            (Some(key), None) => key,
            (None, _) => return Err(unfit(uri, "the token has no such private key")),
            (Some(_), Some(_)) => return Err(unfit(uri, "several private keys match; add ;id=")),
        };
        let public = PublicKey::from_attributes(&key.attributes);
        let why = "its public half is not known: the token needs that, too, with the same CKA_ID";
        let public = public.map_err(|_| unfit(uri, why))?;
        let half = PublicHalf::of(public.spki());
        Ok(Self {
            id: key.id,
            mechanism: csr::mechanism(&public),
            failure: Mutex::default(),
            half: half.map_err(|why| unfit(uri, &why))?,
            token,
            public,
        })
    }

    /// Its public half in the form for certificates (DER).
    pub fn spki(&self) -> &[u8] {
        self.public.spki()
    }

    fn try_sign(&self, data: &[u8]) -> Result<Vec<u8>> {
        let deadline = Instant::now() + SIGN_WITHIN;
        let signature = csr::sign(&*self.token, self.id, &self.mechanism, data, deadline)?;
        self.public.verify(&self.mechanism, data, &signature)?;
        csr::signature_value(&self.mechanism, &signature)
    }
}

impl PublicKeyData for AuthorityKey {
    fn der_bytes(&self) -> &[u8] {
        match self {
            Self::File(key) => key.der_bytes(),
            Self::Token(key) => key.half.der_bytes(),
        }
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match self {
            Self::File(key) => PublicKeyData::algorithm(key),
            Self::Token(key) => key.half.algorithm(),
        }
    }
}

impl SigningKey for AuthorityKey {
    fn sign(&self, data: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        match self {
            Self::File(key) => key.sign(data),
            Self::Token(key) => key.try_sign(data).map_err(|error| {
                *key.failure.lock() = Some(error);
                rcgen::Error::RemoteKeyError
            }),
        }
    }
}

fn unfit(uri: &Uri, why: &str) -> Error {
    Error::request(Kind::Invalid, format!("{uri}: {why}"))
}
