//! The receiving card of a clone or a restore.

use std::collections::BTreeSet;

use super::package::{InstallOutcome, KeyPackage, content};
use super::{ProvisionError, Result};
use crate::{Card, CardChannel, FileId, FileKind, KeyReference};

/// How far the work is, for a bar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CardProgress<'a> {
    /// The serial number of the card that has just finished something.
    pub card: &'a str,
    /// Things that are done, on all cards.
    pub done: usize,
    /// Things to do, on all cards.
    pub total: usize,
}

/// The result for one receiving card.
#[derive(Debug)]
pub struct ReceiveResult {
    /// Its serial number.
    pub card: String,
    /// Keys that it holds now and did not before, proved.
    pub copied: Vec<KeyReference>,
    /// Keys that it held, proved, whose description or certificate were missing or old.
    pub completed: Vec<KeyReference>,
    /// Keys that it held, proved, with all that belongs to them.
    pub present: Vec<KeyReference>,
    /// Other certificates and data that were written.
    pub files: Vec<FileId>,
    /// The errors.
    pub failures: Vec<ProvisionError>,
}

impl ReceiveResult {
    pub(super) fn new(card: &str) -> Self {
        Self {
            card: card.to_owned(),
            copied: Vec::new(),
            completed: Vec::new(),
            present: Vec::new(),
            files: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// True if nothing was done or found.
    pub(super) fn is_empty(&self) -> bool {
        let keys = self.copied.len() + self.completed.len() + self.present.len();
        keys + self.files.len() + self.failures.len() == 0
    }
}

/// A key or a file on its way.
pub(super) enum TransferItem {
    Key(KeyPackage),
    File(FileId, Vec<u8>),
}

/// A card that takes keys and files in, logged in.
pub(super) struct Receiver<'c, C> {
    card: &'c mut Card<C>,
    there: BTreeSet<FileId>,
    received: &'c mut ReceiveResult,
}

impl<'c, C: CardChannel> Receiver<'c, C> {
    pub fn new(card: &'c mut Card<C>, received: &'c mut ReceiveResult) -> Result<Self> {
        let there = card.enumerate()?.into_iter().collect();
        Ok(Self {
            card,
            there,
            received,
        })
    }

    /// Takes one thing in. An error is one that ends the card; others are noted.
    pub fn take(&mut self, item: &TransferItem) -> Result<()> {
        let outcome = match item {
            TransferItem::Key(package) => self.key(package),
            TransferItem::File(file, content) => self.file(*file, content),
        };
        match outcome {
            Err(error) if !error.ends_card() => {
                self.received.failures.push(error);
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn key(&mut self, package: &KeyPackage) -> Result<()> {
        let key = package.reference;
        let present = self.there.contains(&key.file(FileKind::Key));
        let list = match package.install(self.card, &self.received.card, present)? {
            InstallOutcome::Copied => &mut self.received.copied,
            InstallOutcome::Completed => &mut self.received.completed,
            InstallOutcome::Present => &mut self.received.present,
        };
        list.push(key);
        Ok(())
    }

    fn file(&mut self, file: FileId, wanted: &[u8]) -> Result<()> {
        if self.there.contains(&file) {
            return match read(self.card, file)? {
                Some(there) if there == wanted => Ok(()),
                _ => Err(ProvisionError::OtherContent {
                    card: self.received.card.clone(),
                    file,
                }),
            };
        }
        if let Err(error) = self.card.write_file(file, wanted) {
            let _ = self.card.delete_file(file);
            return Err(error.into());
        }
        self.received.files.push(file);
        Ok(())
    }
}

/// Something that a card has to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SourceItem {
    Key(KeyReference),
    File(FileId),
}

/// Everything to copy from a card, without its device key: keys first, descriptions of other things after these.
/// `protected`: also data that need the PIN to be read.
pub(super) fn wanted(files: &[FileId], protected: bool) -> Vec<SourceItem> {
    let rank = |file: &FileId| match file.kind()? {
        FileKind::Key => (file.number() != 0).then_some(0),
        FileKind::CaCertificate | FileKind::Data => Some(1),
        FileKind::ProtectedData => protected.then_some(1),
        FileKind::CertificateDescription | FileKind::DataDescription => Some(2),
        FileKind::KeyDescription | FileKind::Certificate => None,
    };
    let mut ranked: Vec<_> = files
        .iter()
        .filter_map(|file| Some((rank(file)?, *file)))
        .collect();
    ranked.sort_unstable();
    let wanted = |(rank, file): (u8, FileId)| match rank {
        0 => SourceItem::Key(KeyReference(file.number())),
        _ => SourceItem::File(file),
    };
    ranked.into_iter().map(wanted).collect()
}

impl SourceItem {
    /// Takes it from a card that is logged in.
    pub fn take<C: CardChannel>(self, card: &mut Card<C>, serial: &str) -> Result<TransferItem> {
        Ok(match self {
            Self::Key(key) => TransferItem::Key(KeyPackage::take(card, serial, key)?),
            Self::File(file) => TransferItem::File(file, read(card, file)?.unwrap_or_default()),
        })
    }
}

/// The content of a file for comparison and copying: data as a whole, all others without the rest of an older
/// content.
fn read<C: CardChannel>(card: &mut Card<C>, file: FileId) -> Result<Option<Vec<u8>>> {
    match file.kind() {
        Some(FileKind::Data | FileKind::ProtectedData) => {
            Ok(card.read_file_if_any(file)?.map(|content| content.to_vec()))
        }
        _ => content(card, file),
    }
}
