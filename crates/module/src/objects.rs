//! Reading a token's objects: their attributes, their handles, and what they are named.

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

/// How long a reader waits for a session: others may be reading, or making keys.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Whether the secret parts of keys are read, where a token gives them out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    /// Never: what goes into a catalogue.
    Never,
    /// Of session objects: an application that derives a key in the open may read it.
    OfSessionObjects,
    /// Of every object: when an application asks for this one.
    Shown,
}

impl ModuleToken {
    /// Reads everything afresh.
    pub(crate) fn read_objects(&self) -> Result<Arc<Snapshot>> {
        let _turn = self.known.reading.lock();
        self.refresh()
    }

    /// Reads what is new for one who misses an object, and everything if that was not it; of many
    /// at once the first reads for all.
    pub(crate) fn read_objects_for(&self, wanted: &ObjectId) -> Result<()> {
        let before = self.known.reads.load(Ordering::Acquire);
        let _turn = self.known.reading.lock();
        // The next read may have begun before the object was missed, the one after it has not.
        let read_since = self.known.reads.load(Ordering::Acquire) > before + 1;
        let there = || self.handles.get(wanted).is_some();
        if there() || read_since {
            return Ok(());
        }
        // What cannot be described may have gone since the search: the full read says more.
        if self.read_new_objects().is_err() || !there() {
            self.refresh()?;
        }
        Ok(())
    }

    /// Reads the objects whose handles are not known: another process has made them.
    fn read_new_objects(&self) -> Result<()> {
        let lease = self
            .sessions
            .lease(Purpose::Keep, Instant::now() + PATIENCE)?;
        let mut new = self.search(lease.session(), usize::MAX)?;
        let known = self.known.all();
        new.retain(|handle| !known.contains_key(handle));
        // Of a token that was never read all is new, and the full read does the same.
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
            .lease(Purpose::Keep, Instant::now() + PATIENCE)?;
        let (handles, all) = self.read_all(lease.session())?;
        drop(lease);
        let objects = hsmux_software::identify(&self.identity, all);
        let mut found = NameMap::default();
        for (object, handle) in objects.iter().zip(&handles) {
            // Of two objects that are the same the first is used.
            found.entry(object.id).or_insert(*handle);
        }
        self.handles.replace(found);
        let all: BTreeMap<_, _> = handles.into_iter().zip(objects.iter().cloned()).collect();
        let epoch = self.known.replace(all);
        Ok(Arc::new(Snapshot { epoch, objects }))
    }

    fn read_all(&self, session: Session) -> Result<(Vec<Handle>, Vec<Attributes>)> {
        let (mut handles, mut all) = (Vec::new(), Vec::new());
        let mut problem = None;
        for handle in self.search(session, usize::MAX)? {
            match self.describe(session, handle, Values::Never) {
                // There are modules that find session objects all the same.
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
            // Where no object at all can be read, that is the token's trouble.
            Some(e) if all.is_empty() => Err(e),
            _ => Ok((handles, all)),
        }
    }

    /// What can be read of an object.
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
        // An empty one is SoftHSM's way to have none.
        for kind in [CKA_PUBLIC_KEY_INFO, CKA_CHECK_VALUE] {
            if read.get(kind).is_some_and(<[u8]>::is_empty) {
                read.remove(kind);
            }
        }
        if class == Class::SECRET_KEY {
            let known = match values {
                Values::Never => self.known.check_value(object, &read),
                Values::OfSessionObjects | Values::Shown => None,
            };
            let value = known.or_else(|| self.check_value(session, object, &read));
            if let Some(value) = value {
                read.set(CKA_CHECK_VALUE, value);
            }
        }
        Ok(read)
    }

    /// The check value of a block cipher's key: the first three bytes of an enciphered block of
    /// zeros (PKCS#11 3.0, section 4.10.2). With a zero IV the first block of CBC is that of ECB.
    ///
    /// It names the key, so it is computed wherever it can be: SoftHSM's own is another for keys that
    /// were derived, and is missing for those that were unwrapped.
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

/// It was deleted since the search, or another thread is still making it (SoftHSM 2.6.1 then finds
/// the value invalid).
fn came_or_went(error: &Error) -> bool {
    lost_its_object(error) || error.code() == Some(CKR_ATTRIBUTE_VALUE_INVALID)
}
