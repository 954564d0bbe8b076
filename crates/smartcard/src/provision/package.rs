//! One key as it travels, with everything that belongs to it.

mod cbor;

use minicbor::{Decode, Encode};

use super::key_proof::KeyProof;
use super::{Access, ProvisionError, Result, domain};
use crate::dkek::{WrappedKey, WrappedKeyFile};
use crate::tlv::Tlv;
use crate::{Card, CardChannel, FileId, FileKind, KeyReference, StatusWord, cvc};

/// A key that left a card.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct KeyPackage {
    /// Its number, there and where it goes.
    #[n(0)]
    pub reference: KeyReference,
    /// The key under its card's DKEK.
    #[n(1)]
    pub key: WrappedKey,
    /// Its PKCS#15 description.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub description: Option<Vec<u8>>,
    /// Its certificate, or the request in its place.
    #[cbor(n(3), with = "minicbor::bytes")]
    pub certificate: Option<Vec<u8>>,
    /// The proof that a copy has to give; nothing if there is none.
    #[n(4)]
    pub proof: Option<KeyProof>,
}

/// The result of installing a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstallOutcome {
    /// It was not there.
    Copied,
    /// The key was there and has proved itself; its description or certificate were missing or old.
    Completed,
    /// All of it was there, equal.
    Present,
}

impl KeyPackage {
    /// Takes a key from a card that is logged in and whose DKEK is complete.
    pub(super) fn take<C: CardChannel>(
        card: &mut Card<C>,
        serial: &str,
        reference: KeyReference,
    ) -> Result<Self> {
        let wrapped = card.wrap_key(reference).map_err(|error| {
            let (card, key) = (serial.to_owned(), reference);
            match error.status() {
                Some(StatusWord::FILE_NOT_FOUND | StatusWord::REFERENCE_NOT_FOUND) => {
                    ProvisionError::NoKey { card, key }
                }
                // The DKEK is complete: that has been looked at.
                Some(StatusWord::CONDITIONS_NOT_SATISFIED) => {
                    ProvisionError::MayNotLeave { card, key }
                }
                _ => error.into(),
            }
        });
        let key = WrappedKey::parse(&wrapped?)?;
        let description = content(card, reference.file(FileKind::KeyDescription))?;
        let certificate = content(card, reference.file(FileKind::Certificate))?;
        let proof = KeyProof::of(card, serial, reference, &key, certificate.as_deref())?;
        Ok(Self {
            reference,
            key,
            description,
            certificate,
            proof: Some(proof),
        })
    }

    /// A key of a wrapped-key file, which becomes the key with this number.
    pub fn from_file(file: WrappedKeyFile, reference: KeyReference) -> Self {
        let public = file.certificate.as_deref();
        let public = public.and_then(|file| cvc::public_key_of(file).ok());
        Self {
            reference,
            proof: public.as_ref().map(KeyProof::of_public),
            key: file.key,
            description: file.description,
            certificate: file.certificate,
        }
    }

    /// The key as a wrapped-key file.
    pub fn to_file(&self) -> WrappedKeyFile {
        WrappedKeyFile {
            key: self.key.clone(),
            description: self.description.clone(),
            certificate: self.certificate.clone(),
        }
    }

    /// Installs the key on a card that is logged in; `present` says if the number is taken.
    ///
    /// All or nothing: a failure is taken back. The description comes last, since programs find a key by it. A card
    /// that is pulled in the middle shows no half key, and the next try finishes it.
    pub(super) fn install<C: CardChannel>(
        &self,
        card: &mut Card<C>,
        serial: &str,
        present: bool,
    ) -> Result<InstallOutcome> {
        if present {
            self.recognise(card, serial)?;
            let changed = self.write_files(card)?;
            return Ok(if changed {
                InstallOutcome::Completed
            } else {
                InstallOutcome::Present
            });
        }
        let made = self.make(card, serial);
        if made.is_err() {
            // A card that is gone cannot be tidied up; see above.
            let _ = remove(card, self.reference);
        }
        made.map(|()| InstallOutcome::Copied)
    }

    /// The number is taken: by this very key?
    fn recognise<C: CardChannel>(&self, card: &mut Card<C>, serial: &str) -> Result<()> {
        let taken = ProvisionError::Taken {
            card: serial.to_owned(),
            key: self.reference,
        };
        match &self.proof {
            None => Err(taken),
            Some(proof) => match proof.check(card, serial, self.reference) {
                Err(error) if error.is_answer() => Err(taken),
                outcome => outcome,
            },
        }
    }

    fn make<C: CardChannel>(&self, card: &mut Card<C>, serial: &str) -> Result<()> {
        card.unwrap_key(self.reference, self.key.as_bytes())?;
        if let Some(proof) = &self.proof {
            proof.check(card, serial, self.reference)?;
        }
        self.write_files(card).map(drop)
    }

    /// Writes certificate and description where they are not equal already; tells whether any was.
    fn write_files<C: CardChannel>(&self, card: &mut Card<C>) -> Result<bool> {
        let mut changed = false;
        let files = [
            (FileKind::Certificate, &self.certificate),
            (FileKind::KeyDescription, &self.description),
        ];
        for (kind, wanted) in files {
            let file = self.reference.file(kind);
            if let Some(wanted) = wanted
                && content(card, file)?.as_ref() != Some(wanted)
            {
                card.replace_file(file, wanted)?;
                changed = true;
            }
        }
        Ok(changed)
    }
}

/// Takes one key from a card.
pub fn wrap<C: CardChannel>(source: &mut Access<C>, key: KeyReference) -> Result<KeyPackage> {
    let serial = source.serial.clone();
    source.logged_in(|card| {
        domain::check_value(card, &serial)?;
        KeyPackage::take(card, &serial, key)
    })
}

/// Puts one key onto a card with the DKEK that it was wrapped under.
pub fn unwrap<C: CardChannel>(
    target: &mut Access<C>,
    package: &KeyPackage,
) -> Result<InstallOutcome> {
    let serial = target.serial.clone();
    target.logged_in(|card| {
        domain::expect(card, &serial, package.key.check_value())?;
        let present = card
            .enumerate()?
            .contains(&package.reference.file(FileKind::Key));
        package.install(card, &serial, present)
    })
}

/// Takes a key off a card, its description first.
pub(super) fn remove<C: CardChannel>(card: &mut Card<C>, key: KeyReference) -> Result<()> {
    for kind in [
        FileKind::KeyDescription,
        FileKind::Certificate,
        FileKind::Key,
    ] {
        card.delete_file(key.file(kind))?;
    }
    Ok(())
}

/// The BER-TLV content of a file, without the rest of an older, longer content.
pub(super) fn content<C: CardChannel>(card: &mut Card<C>, file: FileId) -> Result<Option<Vec<u8>>> {
    let content = card.read_file_if_any(file)?;
    Ok(content.map(|content| {
        let first = Tlv::first(&content).map(|(first, _)| first.raw);
        first.unwrap_or(&content).to_vec()
    }))
}
