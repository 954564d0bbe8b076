//! Reads a token's objects: their attributes, handles and names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hsmux_token::ck::*;
use hsmux_token::{
    Attributes, Class, Error, KeyKind, Mechanism, NameMap, ObjectId, Result, Snapshot, Token, Uses,
    Verb,
};

use crate::ModuleToken;
use crate::classes::{STORAGE, attributes_of};
use crate::execute::lost_its_object;
use crate::library::{Handle, Session};
use crate::sessions::Purpose;

/// How long a reader waits for a session while others read or create keys.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(30);

/// Controls whether secret parts of keys are read, if the token exports them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    /// Never: for a catalogue.
    Never,
    /// Of session objects: an application may read a key that it derives without protection.
    OfSessionObjects,
    /// Of every object: if an application asks for this object.
    Shown,
}

impl ModuleToken {
    /// Reads everything again.
    pub(crate) fn read_objects(&self) -> Result<Arc<Snapshot>> {
        let _turn = self.object_cache.reading.lock();
        self.refresh()
    }

    /// Reads new objects for a missing one, and then everything if that did not find it.
    /// Of several callers the first one reads for all.
    pub(crate) fn read_objects_for(&self, wanted: &ObjectId) -> Result<()> {
        let before = self.object_cache.reads.load(Ordering::Acquire);
        let _turn = self.object_cache.reading.lock();
        // The next reading may have started before the caller missed the object; the one after it has not.
        let read_since = self.object_cache.reads.load(Ordering::Acquire) > before + 1;
        let there = || self.handles.get(wanted).is_some();
        if there() || read_since {
            return Ok(());
        }
        // Unreadable objects may have been deleted since the search; a complete reading decides.
        if self.read_new_objects().is_err() || !there() {
            self.refresh()?;
        }
        Ok(())
    }

    /// Reads objects with unknown handles: another process has created them.
    fn read_new_objects(&self) -> Result<()> {
        let lease = self
            .sessions
            .lease(Purpose::Keep, Instant::now() + SESSION_TIMEOUT)?;
        let mut new = self.search(lease.session(), usize::MAX)?;
        let known = self.object_cache.all();
        new.retain(|handle| !known.contains_key(handle));
        // A token that was never read needs a complete reading anyway.
        if known.is_empty() || new.is_empty() {
            return Ok(());
        }
        drop(known);
        self.named(lease.session(), &new, Values::Never)?;
        Ok(())
    }

    pub(crate) fn refresh(&self) -> Result<Arc<Snapshot>> {
        let lease = self
            .sessions
            .lease(Purpose::Keep, Instant::now() + SESSION_TIMEOUT)?;
        let (handles, all) = self.read_all(lease.session())?;
        drop(lease);
        let objects = hsmux_software::identify(&self.identity, all);
        let mut found = NameMap::default();
        for (object, handle) in objects.iter().zip(&handles) {
            // Of two identical objects the first is used.
            found.entry(object.id).or_insert(*handle);
        }
        self.handles.replace(found);
        let all: BTreeMap<_, _> = handles.into_iter().zip(objects.iter().cloned()).collect();
        let epoch = self.object_cache.replace(all);
        Ok(Arc::new(Snapshot {
            epoch,
            objects,
            is_partial: false,
        }))
    }

    fn read_all(&self, session: Session) -> Result<(Vec<Handle>, Vec<Attributes>)> {
        let (mut handles, mut all) = (Vec::new(), Vec::new());
        let mut problem = None;
        for handle in self.search(session, usize::MAX)? {
            match self.describe(session, handle, Values::Never) {
                // Some modules return session objects in spite of the template.
                Ok(read) if read.flag(CKA_TOKEN) == Some(false) => {}
                Ok(read) => {
                    handles.push(handle);
                    all.push(read);
                }
                Err(e) if came_or_went(&e) => problem = Some(e),
                Err(e) => return Err(e),
            }
        }
        match problem {
            // If no object is readable, the token has a fault.
            Some(e) if all.is_empty() => Err(e),
            _ => Ok((handles, all)),
        }
    }

    /// Reads the available attributes of an object.
    pub(crate) fn describe(
        &self,
        session: Session,
        object: Handle,
        values: Values,
    ) -> Result<Attributes> {
        let library = self.sessions.library();
        let head = library.attributes(session, object, &[CKA_CLASS, CKA_TOKEN])?;
        let class = Class(head.number(CKA_CLASS).unwrap_or(CKO_VENDOR_DEFINED));
        let mut kinds = [STORAGE, attributes_of(class)].concat();
        if match values {
            Values::Never => false,
            Values::OfSessionObjects => head.flag(CKA_TOKEN) != Some(true),
            Values::Shown => true,
        } {
            kinds.extend_from_slice(class.secrets());
        }
        let mut read = library.attributes(session, object, &kinds)?;
        // SoftHSM returns an empty value for a missing one.
        for kind in [CKA_PUBLIC_KEY_INFO, CKA_CHECK_VALUE] {
            if read.get(kind).is_some_and(<[u8]>::is_empty) {
                read.remove(kind);
            }
        }
        if class == Class::SECRET_KEY {
            let known = match values {
                Values::Never => self.object_cache.check_value(object, &read),
                Values::OfSessionObjects | Values::Shown => None,
            };
            let value = known.or_else(|| self.check_value(session, object, &read));
            if let Some(value) = value {
                read.set(CKA_CHECK_VALUE, value);
            }
        }
        Ok(read)
    }

    /// A block cipher's check value: the first three bytes of an encrypted zero block (PKCS#11 3.0, section 4.10.2).
    /// Computed if possible, since SoftHSM's differs for derived keys and is missing for unwrapped ones.
    fn check_value(&self, session: Session, key: Handle, read: &Attributes) -> Option<Vec<u8>> {
        let cipher = KeyKind::of(read.number(CKA_KEY_TYPE)?).block_cipher()?;
        if read.flag(CKA_ENCRYPT) != Some(true) {
            return None;
        }
        let zeros = vec![0; cipher.len];
        let ways = [
            Mechanism::plain(cipher.ecb),
            Mechanism::with_bytes(cipher.cbc, zeros.clone()),
        ];
        let library = self.sessions.library();
        let info = self.info();
        let mut offered = ways.iter().filter(|way| {
            let uses = info.mechanism(way.kind).map(|m| m.flags);
            uses.is_some_and(|flags| flags & Uses::ENCRYPT.bits() != 0)
        });
        offered.find_map(|way| {
            let text = library
                .crypt(session, Verb::Encrypt, way, key, &zeros)
                .ok()?;
            Some(text.get(..3)?.to_vec())
        })
    }
}

/// Recognises an object that was deleted since the search, or is incomplete (SoftHSM 2.6.1: an invalid value).
fn came_or_went(error: &Error) -> bool {
    lost_its_object(error) || error.code() == Some(CKR_ATTRIBUTE_VALUE_INVALID)
}
