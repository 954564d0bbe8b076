//! A whole card in one file.
//!
//! The line `hsmux card backup 1`, a CBOR map with numbered keys (the fields of [`Backup`]), and the SHA-256 of both,
//! which detects a damaged file. Its keys are wrapped by their card: without all shares of the DKEK they cannot be
//! read. Certificates and descriptions are public.

use minicbor::{Decode, Encode};
use sha2::{Digest, Sha256};

use super::access::Access;
use super::receive::{CardProgress, ReceiveResult, Receiver, TransferItem, wanted};
use super::{KeyPackage, ProvisionError, Result, domain};
use crate::dkek::CheckValue;
use crate::pkcs15::TokenInfo;
use crate::{CardChannel, FileId, FileKind};

const HEAD: &[u8] = b"hsmux card backup 1\n";
const DIGEST: usize = 32;

/// The content of a card, without secrets that never leave it.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Backup {
    /// Serial number of the card.
    #[n(0)]
    pub serial: String,
    /// Its label.
    #[n(1)]
    pub label: String,
    /// The DKEK that the keys are under.
    #[cbor(n(2), with = "minicbor::bytes")]
    check_value: [u8; 8],
    /// The keys.
    #[n(3)]
    pub keys: Vec<KeyPackage>,
    /// Certificates that belong to no key, data, and their descriptions.
    #[n(4)]
    pub files: Vec<CardFile>,
}

/// A file of a card.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct CardFile {
    /// Its identifier.
    #[n(0)]
    id: u16,
    /// The content.
    #[cbor(n(1), with = "minicbor::bytes")]
    content: Vec<u8>,
}

impl Backup {
    /// Reads everything from a card. Data objects that need the PIN to be read lie open in the file, and so
    /// are taken along only with `protected`.
    ///
    /// One key that cannot be taken fails the whole: a backup without it would be none.
    pub fn take<C: CardChannel>(
        source: &mut Access<C>,
        protected: bool,
        progress: &dyn Fn(CardProgress<'_>),
    ) -> Result<Self> {
        let serial = source.serial.clone();
        source.logged_in(|card| {
            let check_value = domain::check_value(card, &serial)?.0;
            let info = card.read_file_if_any(FileId::TOKEN_INFO)?;
            let info = info.and_then(|content| TokenInfo::parse(&content).ok());
            let mut backup = Self {
                serial: serial.clone(),
                label: info.map(|info| info.label).unwrap_or_default(),
                check_value,
                keys: Vec::new(),
                files: Vec::new(),
            };
            let wanted = wanted(&card.enumerate()?, protected);
            let total = wanted.len();
            for (before, wanted) in wanted.into_iter().enumerate() {
                match wanted.take(card, &serial)? {
                    TransferItem::Key(key) => backup.keys.push(key),
                    TransferItem::File(FileId(id), content) => {
                        backup.files.push(CardFile { id, content });
                    }
                }
                progress(CardProgress {
                    card: &serial,
                    done: before + 1,
                    total,
                });
            }
            Ok(backup)
        })
    }

    /// Puts everything onto a card with the same DKEK; what is there and equal is left, and running it again
    /// does what is missing.
    pub fn restore<C: CardChannel>(
        &self,
        target: &mut Access<C>,
        progress: &dyn Fn(CardProgress<'_>),
    ) -> Result<ReceiveResult> {
        let serial = target.serial.clone();
        let mut gain = ReceiveResult::new(&serial);
        let keys = self.keys.iter().cloned().map(TransferItem::Key);
        let file = |file: &CardFile| TransferItem::File(FileId(file.id), file.content.clone());
        let items: Vec<_> = keys.chain(self.files.iter().map(file)).collect();
        let outcome = target.logged_in(|card| {
            domain::expect(card, &serial, self.check_value())?;
            let mut receiver = Receiver::new(card, &mut gain)?;
            for (before, item) in items.iter().enumerate() {
                receiver.take(item)?;
                progress(CardProgress {
                    card: &serial,
                    done: before + 1,
                    total: items.len(),
                });
            }
            Ok(())
        });
        match outcome {
            // Nothing was begun: that is the whole answer.
            Err(error) if gain.is_empty() => Err(error),
            outcome => {
                gain.failures.extend(outcome.err());
                Ok(gain)
            }
        }
    }

    /// The DKEK that the keys are under.
    pub fn check_value(&self) -> CheckValue {
        CheckValue(self.check_value)
    }

    /// The content of a file.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = HEAD.to_vec();
        minicbor::encode(self, &mut bytes)
            .map_err(|error| ProvisionError::Backup(error.to_string()))?;
        let digest = Sha256::digest(&bytes);
        bytes.extend_from_slice(&digest);
        Ok(bytes)
    }

    /// Reads the content of a file.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let wrong = |why: &str| ProvisionError::Backup(why.to_owned());
        let body = bytes.strip_prefix(HEAD);
        let body = body.ok_or_else(|| wrong("it does not begin as backups of this version do"))?;
        let cut = || wrong("it is damaged: take another copy of it");
        let body = body
            .get(..body.len().saturating_sub(DIGEST))
            .ok_or_else(cut)?;
        let (content, digest) = bytes.split_at(HEAD.len() + body.len());
        if Sha256::digest(content).as_slice() != digest {
            return Err(cut());
        }
        Self::parse_body(body)
    }

    fn parse_body(body: &[u8]) -> Result<Self> {
        let wrong = |why: &str| ProvisionError::Backup(why.to_owned());
        let backup: Self = minicbor::decode(body).map_err(|error| wrong(&error.to_string()))?;
        let strange = backup.files.iter().find(|file| !file.may_be_restored());
        match strange {
            Some(file) => Err(wrong(&format!(
                "{} belongs to a key or to no kind",
                FileId(file.id)
            ))),
            None => Ok(backup),
        }
    }
}

#[doc(hidden)]
/// For fuzz targets: reads what the hash is over, without its first line.
pub fn parse_content(body: &[u8]) -> Result<Backup> {
    Backup::parse_body(body)
}

impl CardFile {
    /// True if [`Backup::take`] makes such a file: a forged backup must not write other ones.
    fn may_be_restored(&self) -> bool {
        use FileKind::{
            CaCertificate, CertificateDescription, Data, DataDescription, ProtectedData,
        };
        let own = [
            CaCertificate,
            CertificateDescription,
            Data,
            DataDescription,
            ProtectedData,
        ];
        FileId(self.id)
            .kind()
            .is_some_and(|kind| own.contains(&kind))
    }
}
