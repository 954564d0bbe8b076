//! All objects that the application can name: the catalogue's, and those of its sessions.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use hsmux_token::ck::CKR_OBJECT_HANDLE_INVALID;
use hsmux_token::sync::atomic::{AtomicU64, Ordering};
use hsmux_token::sync::{Mutex, RwLock};
use hsmux_token::{Attributes, Class, Error, Made, NameMap};
use hsmux_wire::View;

use super::handles::HandleNumbers;
use super::template::is_private;
use super::{CatalogueView, ObjectEntry, ObjectLocation};
use crate::backend::Backend;
use crate::rv::{Result, Rv};

/// Reading takes no lock that a call to the backend is made under.
#[derive(Default)]
pub struct Objects {
    catalogue: ArcSwap<CatalogueView>,
    session: RwLock<NameMap<u64, Arc<ObjectEntry>>>,
    numbers: Mutex<HandleNumbers>,
    /// Views are asked for in this order, and an older one never takes the place of a newer.
    asked: AtomicU64,
    shown: Mutex<u64>,
}

impl Objects {
    /// The catalogue as it was read last.
    pub fn catalogue(&self) -> Guard<Arc<CatalogueView>> {
        self.catalogue.load()
    }

    /// Reads the catalogue anew if it has changed.
    pub fn refresh(&self, backend: &dyn Backend) -> Result {
        let known = self.catalogue.load().epoch;
        self.read(backend, known)
    }

    /// Reads the catalogue anew: after a login or logout another view is true.
    pub fn reread(&self, backend: &dyn Backend) -> Result {
        self.read(backend, 0)
    }

    /// Shows no private object of the token until the catalogue is read again. A view that was asked for before is not
    /// shown.
    pub fn hide_private(&self) {
        let mut shown = self.shown.lock();
        *shown = self.ask();
        let public = self.catalogue.load().without_private();
        self.catalogue.store(Arc::new(public));
    }

    fn read(&self, backend: &dyn Backend, mut known: u64) -> Result {
        loop {
            let turn = self.ask();
            match backend.view(known)? {
                Some(view) if view.epoch != 0 => {
                    if self.show(view, turn) {
                        return Ok(());
                    }
                }
                None if known != 0 => {}
                _ => return Err(Error::protocol("no catalogue, where all is new").into()),
            }
            if self.catalogue.load().epoch != 0 {
                return Ok(());
            }
            // Another thread has logged out meanwhile.
            known = 0;
        }
    }

    /// Shows a view that was asked for in this turn. Answers whether nothing newer is shown.
    fn show(&self, view: View, turn: u64) -> bool {
        let mut shown = self.shown.lock();
        let is_newest = *shown < turn;
        if is_newest {
            *shown = turn;
            let old = self.catalogue.load();
            let new = CatalogueView::new(view, &old, &mut self.numbers.lock());
            self.catalogue.store(Arc::new(new));
        }
        is_newest
    }

    /// The turn of whoever asks for a view, or hides objects, now.
    fn ask(&self) -> u64 {
        // Orders the backend's view after the logout of an earlier turn.
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The object of a handle.
    pub fn get(&self, handle: u64) -> Result<Arc<ObjectEntry>> {
        if let Some(entry) = self.catalogue.load().get(handle) {
            return Ok(Arc::clone(entry));
        }
        let session = self.session.read();
        session
            .get(&handle)
            .map(Arc::clone)
            .ok_or(Rv(CKR_OBJECT_HANDLE_INVALID))
    }

    /// A handle for an object that the backend has made.
    pub fn adopt(&self, made: Made, session: u64) -> u64 {
        let Some(object) = made.session else {
            return self.adopt_token(made);
        };
        self.insert(
            ObjectLocation::Member(object),
            session,
            made.object.attributes,
        )
    }

    fn adopt_token(&self, made: Made) -> u64 {
        let handle = self.numbers.lock().of(made.object.id);
        let _one_at_a_time = self.shown.lock();
        let catalogue = self.catalogue.load();
        // Another thread may have logged out since a key was made.
        let class = made.object.id.class;
        let is_secret = matches!(class, Class::PRIVATE_KEY | Class::SECRET_KEY);
        let is_private = is_private(class, &made.object.attributes);
        let is_hidden = is_secret && is_private && !catalogue.logged_in;
        if !is_hidden && catalogue.get(handle).is_none() {
            self.catalogue.store(Arc::new(catalogue.with(made, handle)));
        }
        handle
    }

    /// A handle for a session object.
    pub fn insert(&self, location: ObjectLocation, session: u64, attributes: Attributes) -> u64 {
        let handle = self.numbers.lock().fresh();
        self.put(ObjectEntry::new(handle, location, session, attributes));
        handle
    }

    /// Puts a session object in the place of the one with its handle.
    pub fn put(&self, entry: ObjectEntry) {
        self.session.write().insert(entry.handle, Arc::new(entry));
    }

    /// Takes a session object out.
    pub fn remove(&self, handle: u64) {
        self.session.write().remove(&handle);
    }

    /// Takes out every session object that `goes`.
    pub fn remove_all(&self, goes: impl Fn(&ObjectEntry) -> bool) -> Vec<Arc<ObjectEntry>> {
        if self.session.read().is_empty() {
            return Vec::new();
        }
        let mut gone = Vec::new();
        self.session.write().retain(|_, entry| {
            let stays = !goes(entry);
            if !stays {
                gone.push(Arc::clone(entry));
            }
            stays
        });
        gone
    }

    /// Session objects, in no order.
    pub(super) fn of_sessions(&self) -> Vec<Arc<ObjectEntry>> {
        self.session.read().values().map(Arc::clone).collect()
    }
}
