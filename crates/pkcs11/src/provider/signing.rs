//! A signature between its init and its end (provider-signature(7)).

use std::borrow::Cow;
use std::ffi::CStr;
use std::sync::Arc;

use hsmux_software::{csr, prehashed_input};
use hsmux_token::{Error, KeyKind, Kind, Result};

use super::key::{PoolPrivateKey, ProviderKey};
use super::names;
use super::scheme::SignatureScheme;
use super::value::ParamValue;
use crate::crypt::{ActiveOperation, Function};
use crate::rv::Rv;

/// The state of an OpenSSL context; OpenSSL copies one for each signature.
#[derive(Clone, Default)]
pub struct SignatureOperation {
    key: Option<Arc<ProviderKey>>,
    scheme: SignatureScheme,
    hashes: bool,
    /// From the first data on.
    active: Option<ActiveOperation>,
}

impl SignatureOperation {
    /// Begins anew, with another key or with the one that it has, and with the padding that is the usual one; what
    /// comes is hashed here (`hashes`), or is a digest.
    pub fn begin(
        &mut self,
        key: Option<Arc<ProviderKey>>,
        digest: Option<&str>,
        hashes: bool,
    ) -> Result<()> {
        if key.is_some() {
            self.key = key;
        }
        self.private()?;
        self.active = None;
        self.hashes = hashes;
        self.scheme = SignatureScheme::with(self.scheme.hash);
        if let Some(digest) = digest.filter(|name| !name.is_empty()) {
            self.scheme.set(names::DIGEST, &ParamValue::Text(digest))?;
        }
        Ok(())
    }

    /// Takes a parameter; what is not known means nothing here.
    pub fn set(&mut self, name: &CStr, value: &ParamValue) -> Result<()> {
        self.scheme.set(name, value)
    }

    /// The value of a parameter; `None` for an unknown one.
    pub fn get(&self, name: &CStr) -> Result<Option<ParamValue<'_>>> {
        Ok(if name == names::DIGEST {
            self.scheme
                .hash
                .and_then(names::of_hash)
                .map(ParamValue::Text)
        } else if name == names::PAD_MODE {
            self.scheme.padding().map(ParamValue::Text)
        } else if name == names::ALGORITHM_ID {
            Some(ParamValue::Bytes(self.algorithm()?.into()))
        } else {
            None
        })
    }

    /// The DER of the AlgorithmIdentifier. A missing one is an error here: OpenSSL's ASN1_item_sign_ctx and CMS do
    /// not check that they got one.
    fn algorithm(&self) -> Result<Vec<u8>> {
        let public = &self.key.as_ref().ok_or_else(no_key)?.public;
        let mechanism = self.scheme.mechanism(public, true)?;
        csr::algorithm(&mechanism).ok_or_else(|| {
            let message = format!(
                "{}: certificates and messages are not signed by it here; leave the padding pkcs1",
                mechanism.name()
            );
            Error::request(Kind::Unsupported, message)
        })
    }

    /// The most that a signature has, in bytes.
    pub fn max_len(&self) -> usize {
        self.key.as_ref().map_or(0, |key| key.max_len())
    }

    /// Takes a part of the data.
    pub fn feed(&mut self, part: &[u8]) -> Result<()> {
        self.active()?.feed(part).map_err(refused)
    }

    /// The signature of all parts and the `last`, in the form of X.509; the pool is asked only if the answer fits.
    pub fn finish(&mut self, last: &[u8], room: usize) -> Result<Vec<u8>> {
        fits(self.max_len(), room)?;
        let last = self.input(last)?;
        let operation = self.active()?.operation(&last).map_err(refused)?;
        self.active = None;
        let private = self.private()?;
        let signature = private.execute(&operation)?.into_bytes()?;
        let mechanism = operation.mechanism().ok_or_else(no_key)?;
        csr::signature_value(mechanism, &signature)
    }

    /// The input of a mechanism that does not hash: a DigestInfo, or as much of the digest as a curve's order has
    /// (FIPS 186-5, section 6.4.1).
    fn input<'a>(&self, data: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        if self.hashes {
            return Ok(data.into());
        }
        let public = &self.key.as_ref().ok_or_else(no_key)?.public;
        if let Some(hash) = self.scheme.hash.filter(|hash| hash.len() != data.len()) {
            let message = format!("{} bytes are no digest of {hash:?}", data.len());
            return Err(Error::request(Kind::Invalid, message));
        }
        match (self.scheme.hash, public.kind()) {
            (Some(hash), KeyKind::Rsa) => {
                let raw = self.scheme.mechanism(public, false)?;
                Ok(prehashed_input(hash, &raw, data))
            }
            (None, KeyKind::Rsa) => Ok(data.into()),
            _ => Ok(data[..data.len().min(public.signature_len() / 2)].into()),
        }
    }

    fn active(&mut self) -> Result<&mut ActiveOperation> {
        if self.active.is_none() {
            let key = self.key.as_ref().ok_or_else(no_key)?;
            let mechanism = self.scheme.mechanism(&key.public, self.hashes)?;
            self.active = Some(self.private()?.begin(Function::Sign, mechanism)?);
        }
        self.active.as_mut().ok_or_else(no_key)
    }

    fn private(&self) -> Result<&PoolPrivateKey> {
        let private = self.key.as_ref().and_then(|key| key.private.as_ref());
        private.ok_or_else(no_key)
    }
}

fn fits(len: usize, room: usize) -> Result<()> {
    if len <= room {
        return Ok(());
    }
    let message = format!("a signature may have {len} bytes, and there is room for {room}");
    Err(Error::request(Kind::Invalid, message))
}

fn no_key() -> Error {
    Error::request(Kind::Invalid, "no private key of the pool to sign with")
}

fn refused(rv: Rv) -> Error {
    Error::vendor("C_Sign", rv.0)
}
