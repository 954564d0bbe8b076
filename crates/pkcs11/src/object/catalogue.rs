//! The token's objects as this application may see them, at one moment.

use std::sync::Arc;

use hsmux_token::{Made, NameMap, Object, TokenInfo};
use hsmux_wire::View;

use super::handles::HandleNumbers;
use super::{ObjectEntry, ObjectLocation};
use crate::mechanisms::Mechanisms;

/// A view with handles. It does not change: a newer one takes its place.
#[derive(Default)]
pub struct CatalogueView {
    /// The epoch it was read in; 0 before the first, and after a logout.
    pub epoch: u64,
    /// The pool as one token.
    pub info: TokenInfo,
    /// The mechanisms on offer.
    pub mechanisms: Mechanisms,
    /// True if private objects are among them.
    pub logged_in: bool,
    entries: NameMap<u64, Arc<ObjectEntry>>,
}

impl CatalogueView {
    /// The catalogue of a view; entries of `old` that are still true stay, with what is cached in them.
    pub fn new(view: View, old: &Self, numbers: &mut HandleNumbers) -> Self {
        let entry = |object: Object| {
            let handle = numbers.of(object.id);
            let entry = match old.entries.get(&handle) {
                Some(known) if known.attributes == object.attributes => Arc::clone(known),
                _ => Arc::new(of_token(handle, object)),
            };
            (handle, entry)
        };
        Self {
            epoch: view.epoch,
            mechanisms: Mechanisms::new(&view.info),
            info: view.info,
            logged_in: view.logged_in,
            entries: view.objects.into_iter().map(entry).collect(),
        }
    }

    /// The same with an object that was made just now and may not be in any view yet.
    pub fn with(&self, made: Made, handle: u64) -> Self {
        let mut entries = self.entries.clone();
        entries.insert(handle, Arc::new(of_token(handle, made.object)));
        Self {
            epoch: self.epoch,
            info: self.info.clone(),
            mechanisms: self.mechanisms.clone(),
            logged_in: self.logged_in,
            entries,
        }
    }

    /// The same after a logout, without private objects. The next read replaces it, whatever has changed.
    pub fn without_private(&self) -> Self {
        let public = self.entries.iter().filter(|(_, entry)| !entry.is_private());
        Self {
            epoch: 0,
            info: self.info.clone(),
            mechanisms: self.mechanisms.clone(),
            logged_in: false,
            entries: public
                .map(|(handle, entry)| (*handle, Arc::clone(entry)))
                .collect(),
        }
    }

    /// The object of a handle.
    pub fn get(&self, handle: u64) -> Option<&Arc<ObjectEntry>> {
        self.entries.get(&handle)
    }

    /// All, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ObjectEntry>> {
        self.entries.values()
    }
}

fn of_token(handle: u64, object: Object) -> ObjectEntry {
    ObjectEntry::new(
        handle,
        ObjectLocation::Token(object.id),
        0,
        object.attributes,
    )
}
