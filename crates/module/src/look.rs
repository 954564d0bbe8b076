//! Finds objects that other processes have added or removed, by handles; reads only the new ones.

use std::collections::HashMap;
use std::time::Instant;

use hsmux_token::ck::{CKA_ID, CKA_PUBLIC_KEY_INFO};
use hsmux_token::{Class, Object, ObjectChanges, ObjectId, Outcome, Result};

use crate::ModuleToken;
use crate::library::{Handle, Session};
use crate::objects::{SESSION_TIMEOUT, Values};
use crate::sessions::Purpose;

impl ModuleToken {
    /// One search; reads new objects. The next complete reading finds changed attributes, and reused handles.
    pub(crate) fn look_around(&self) -> Result<ObjectChanges> {
        let _turn = self.object_cache.reading.lock();
        let lease = self
            .sessions
            .lease(Purpose::Keep, Instant::now() + SESSION_TIMEOUT)?;
        let found = self.search(lease.session(), usize::MAX)?;
        let (new, lost) = self.object_cache.compare(&found);
        if new.is_empty() && lost.is_empty() {
            return Ok(ObjectChanges::default());
        }
        let before = self.by_name();
        self.object_cache.remove_all(&lost);
        if let Some(copies) = &self.copies {
            copies.end_lost(&self.sessions, &lost);
        }
        self.handles.take(|_, handle| lost.contains(handle));
        let mut made = self.read_each(lease.session(), &new);
        drop(lease);
        if made.iter().any(|object| self.may_name_another(object)) {
            let all = self.refresh()?;
            let new = |object: &&Object| before.get(&object.id) != Some(object);
            made = all.objects.iter().filter(new).cloned().collect();
        }
        let left = self.by_name();
        let gone = before.into_keys().filter(|id| !left.contains_key(id));
        Ok(ObjectChanges {
            is_partial: false,
            made,
            gone: gone.collect(),
        })
    }

    fn by_name(&self) -> HashMap<ObjectId, Object> {
        let known = self.object_cache.all();
        known.values().map(|o| (o.id, o.clone())).collect()
    }

    /// Reads new objects. Unreadable ones may be deleted or incomplete; the next scan decides.
    fn read_each(&self, session: Session, new: &[Handle]) -> Vec<Object> {
        match self.named(session, new, Values::Never) {
            Ok(Outcome::Objects(made)) => made.into_iter().map(|made| made.object).collect(),
            _ if new.len() > 1 => {
                let each = new.iter().map(std::slice::from_ref);
                each.flat_map(|one| self.read_each(session, one)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// True for an object that could name a private key without a name.
    fn may_name_another(&self, object: &Object) -> bool {
        let id = object.attributes.get(CKA_ID);
        matches!(object.id.class, Class::PUBLIC_KEY | Class::CERTIFICATE)
            && self.object_cache.all().values().any(|other| {
                other.id.class == Class::PRIVATE_KEY
                    && other.attributes.get(CKA_ID) == id
                    && other.attributes.get(CKA_PUBLIC_KEY_INFO).is_none()
            })
    }
}
