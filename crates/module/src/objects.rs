//! Reading a token's objects: their attributes, their handles, and what they are named.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class, Mechanism, ObjectId, Result, Snapshot, Token, Uses, Verb};

use crate::ModuleToken;
use crate::classes::{STORAGE, attributes_of, secrets_of};
use crate::library::{Handle, Session};
use crate::sessions::Purpose;

/// How long a reader waits for a session: others may be reading, or making keys.
const PATIENCE: Duration = Duration::from_secs(30);

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
        let mut known = self.known.lock();
        self.refresh(&mut known)?;
        Ok(Arc::clone(&known))
    }

    /// Reads everything, unless somebody else has found `wanted` meanwhile.
    pub(crate) fn read_objects_for(&self, wanted: &ObjectId) -> Result<()> {
        let mut known = self.known.lock();
        match self.handles.get(wanted) {
            Some(_) => Ok(()),
            None => self.refresh(&mut known),
        }
    }

    fn refresh(&self, known: &mut Arc<Snapshot>) -> Result<()> {
        let lease = self
            .sessions
            .lease(Purpose::Keep, Instant::now() + PATIENCE)?;
        let session = lease.session();
        let of_token = Attributes::default().with_flag(CKA_TOKEN, true);
        let library = self.sessions.library();
        let mut handles = library.find(session, &of_token, usize::MAX)?;
        let mut all = Vec::with_capacity(handles.len());
        handles.retain(|&handle| {
            // What was deleted since the search is not there.
            let read = self.describe(session, handle, Values::Never);
            let read = read.ok().filter(|a| a.flag(CKA_TOKEN) != Some(false));
            read.map(|attributes| all.push(attributes)).is_some()
        });
        let objects = hsmux_software::identify(&self.serial(), all);
        let mut found = HashMap::with_capacity(objects.len());
        for (object, handle) in objects.iter().zip(handles) {
            // Of two objects that are the same the first is used.
            found.entry(object.id).or_insert(handle);
        }
        self.handles.replace(found);
        if known.epoch == 0 || known.objects != objects {
            *known = Arc::new(Snapshot {
                epoch: known.epoch + 1,
                objects,
            });
        }
        Ok(())
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
            kinds.extend_from_slice(secrets_of(class));
        }
        let mut read = library.attributes(session, object, &kinds)?;
        // An empty one is SoftHSM's way to have none.
        for kind in [CKA_PUBLIC_KEY_INFO, CKA_CHECK_VALUE] {
            if read.get(kind).is_some_and(<[u8]>::is_empty) {
                read.remove(kind);
            }
        }
        if class == Class::SECRET_KEY
            && read.get(CKA_CHECK_VALUE).is_none()
            && let Some(value) = self.check_value(session, object, &read)
        {
            read.set(CKA_CHECK_VALUE, value);
        }
        Ok(read)
    }

    /// The check value of a block cipher's key: the first three bytes of an enciphered block of
    /// zeros (PKCS#11 3.0, section 4.10.2). With a zero IV the first block of CBC is that of ECB.
    fn check_value(&self, session: Session, key: Handle, read: &Attributes) -> Option<Vec<u8>> {
        let (ecb, cbc, block) = match read.number(CKA_KEY_TYPE)? {
            CKK_AES => (CKM_AES_ECB, CKM_AES_CBC, 16),
            CKK_DES3 => (CKM_DES3_ECB, CKM_DES3_CBC, 8),
            _ => return None,
        };
        if read.flag(CKA_ENCRYPT) != Some(true) {
            return None;
        }
        let zeros = vec![0; block];
        let ways = [
            Mechanism::plain(ecb),
            Mechanism::with_bytes(cbc, zeros.clone()),
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

    /// The serial number names what nothing else can.
    pub(crate) fn serial(&self) -> String {
        self.info().serial.clone()
    }
}
