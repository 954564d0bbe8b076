//! The key of a request: a managed key with its versions, or an external one.

use std::pin::Pin;
use std::sync::Arc;

use hsmux_config::Action;
use hsmux_software::PublicKey;
use hsmux_token::{Hash, ObjectId};

use crate::engine::{Cipher, CipherKey, ExternalKey, RsaPadding, is_external};
use crate::http::{ApiCall, UseDetails};
use crate::key::{HASHES, KeyVersion, ManagedKey, Shape};
use crate::refusal::Refusal;

/// The key of a request.
pub enum RequestedKey {
    /// One that the broker has made.
    Managed(Arc<ManagedKey>),
    /// A key of another program; it has one version.
    External(ExternalKey),
}

/// One use of a request's key: by the whole request, or by an item of its batch.
pub struct KeyUse<'a> {
    /// The request.
    pub call: &'a ApiCall,
    key: &'a RequestedKey,
    used: UseDetails,
}

/// A version of either.
pub struct ChosenVersion {
    /// From 1.
    pub number: u32,
    /// The secret or private key.
    pub object: ObjectId,
    /// The algorithm, and so what the key can do.
    pub shape: Shape,
    version: Option<Arc<KeyVersion>>,
}

/// The options of a request for encryption.
#[derive(Default)]
pub struct CipherOptions<'a> {
    /// `oaep` or `pkcs1v15`.
    pub padding: Option<&'a str>,
    /// The hash of OAEP.
    pub oaep_hash: Option<&'a str>,
    /// `gcm` or `cbc`.
    pub mode: Option<&'a str>,
}

impl RequestedKey {
    /// Looks the key up.
    pub fn find(call: &ApiCall) -> Result<Self, Refusal> {
        let name = call.key();
        let engine = call.engine();
        if is_external(name) {
            let external = engine.external(name)?;
            call.means(external.object);
            return Ok(Self::External(external));
        }
        engine.keyring().find(name).map(Self::Managed)
    }

    fn to_make(&self, asked: Option<u32>) -> Result<ChosenVersion, Refusal> {
        match self {
            Self::Managed(key) => Ok(ChosenVersion::of(key, key.to_make(asked)?)),
            Self::External(external) => match asked {
                None | Some(0 | 1) => Ok(ChosenVersion::external(external)),
                Some(_) => Err(Refusal::bad("a key that others have made has one version")),
            },
        }
    }

    fn to_read(&self, number: u32) -> Result<ChosenVersion, Refusal> {
        match self {
            Self::Managed(key) => Ok(ChosenVersion::of(key, key.to_read(number)?)),
            Self::External(external) if number == 1 => Ok(ChosenVersion::external(external)),
            Self::External(_) => Err(Refusal::bad("invalid ciphertext: version is too new")),
        }
    }
}

impl<'a> KeyUse<'a> {
    /// It has not begun.
    pub fn new(call: &'a ApiCall, key: &'a RequestedKey) -> Self {
        Self {
            call,
            key,
            used: UseDetails::default(),
        }
    }

    /// Runs it under this name, with metrics and trail.
    pub async fn run<T>(
        &self,
        name: &'static str,
        work: Pin<&mut impl Future<Output = Result<T, Refusal>>>,
    ) -> Result<T, Refusal> {
        self.call.using(name, &self.used, work).await
    }

    /// The version that makes something new.
    pub fn to_make(&self, asked: Option<u32>) -> Result<ChosenVersion, Refusal> {
        self.key.to_make(asked).inspect(|chosen| self.note(chosen))
    }

    /// The version that has made something.
    pub fn to_read(&self, number: u32) -> Result<ChosenVersion, Refusal> {
        self.key.to_read(number).inspect(|chosen| self.note(chosen))
    }

    fn note(&self, chosen: &ChosenVersion) {
        if chosen.version.is_some() {
            self.used.version(chosen.number);
        }
    }
}

impl ChosenVersion {
    fn of(key: &ManagedKey, version: &Arc<KeyVersion>) -> Self {
        Self {
            number: version.number,
            object: version.object,
            shape: key.kind.shape(),
            version: Some(Arc::clone(version)),
        }
    }

    fn external(external: &ExternalKey) -> Self {
        Self {
            number: 1,
            object: external.object,
            shape: external.shape,
            version: None,
        }
    }

    /// The cipher; options that a policy has to allow by name are checked here.
    pub async fn target(
        &self,
        KeyUse { call, used, .. }: &KeyUse<'_>,
        choice: &CipherOptions<'_>,
        action: Action,
    ) -> Result<CipherKey, Refusal> {
        let version = self.version.as_ref();
        let cipher = match (self.shape, choice.mode) {
            (Shape::AesGcm { .. }, Some("cbc")) if version.is_none() => {
                call.may_within(Action::RawCbc)?;
                used.mechanism("CKM_AES_CBC_PAD");
                Cipher::RawCbc
            }
            (_, Some(mode)) if mode != "gcm" || !matches!(self.shape, Shape::AesGcm { .. }) => {
                let message = format!(
                    "mode {mode:?} is not for this key: \"gcm\" and \"cbc\" are for AES keys that others have made"
                );
                return Err(Refusal::bad(message));
            }
            (Shape::AesGcm { .. }, _) => {
                let own = version.and_then(|version| version.budget.clone());
                let budget = match own {
                    Some(budget) => budget,
                    None => call.engine().external_budget(self.object).await?,
                };
                Cipher::Gcm(budget)
            }
            (Shape::AesCbcHmac, _) => {
                let mac = version.and_then(|version| version.mac);
                Cipher::CbcHmac(mac.ok_or_else(Refusal::no_key)?)
            }
            (Shape::Rsa { .. }, _) => {
                let padding = padding(choice)?;
                if padding == RsaPadding::Pkcs1 && action != Action::Encrypt {
                    call.may_within(Action::Pkcs1Decrypt)?;
                    used.mechanism("CKM_RSA_PKCS");
                }
                Cipher::Rsa(padding)
            }
            _ => return Err(Refusal::bad("keys of this type do not encrypt or decrypt")),
        };
        Ok(CipherKey {
            object: self.object,
            cipher,
        })
    }

    /// The public half.
    pub fn public(&self, call: &ApiCall) -> Result<PublicKey, Refusal> {
        match &self.version {
            Some(version) => call.engine().public_half(version),
            None => Ok(call.engine().public_key(self.object)?),
        }
    }
}

fn padding(choice: &CipherOptions<'_>) -> Result<RsaPadding, Refusal> {
    match choice.padding {
        None | Some("" | "oaep") => {
            let hash = hash(choice.oaep_hash.unwrap_or("sha2-256"))?;
            Ok(RsaPadding::Oaep(hash))
        }
        Some("pkcs1v15") => Ok(RsaPadding::Pkcs1),
        Some(other) => Err(Refusal::bad(format!(
            "padding_scheme {other:?}: there are oaep and pkcs1v15"
        ))),
    }
}

/// A hash by the dialect's word.
pub fn hash(word: &str) -> Result<Hash, Refusal> {
    let found = HASHES.iter().find(|(name, ..)| *name == word);
    found.map(|(_, hash, _)| *hash).ok_or_else(|| {
        let words: Vec<_> = HASHES.iter().map(|(word, ..)| *word).collect();
        Refusal::bad(format!(
            "unsupported hash algorithm {word:?}; there are {}",
            words.join(", ")
        ))
    })
}
