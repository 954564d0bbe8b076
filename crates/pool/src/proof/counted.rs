//! Keys with use counters: each proof would be a use, so they are proved when a person asks for it.

use std::collections::HashSet;

use hsmux_token::sync::Mutex;
use hsmux_token::{Object, ObjectId};

use crate::Options;
use crate::record::Connection;

/// Why such a key does not serve, and what to do.
pub(super) const COUNTED: &str = "it has a use counter ([pool] counted), and a proof would be a use; \
     hsmux key verify with its URI proves it";

/// Such keys that were proved, each on one connection, for as long as that lasts.
#[derive(Default)]
pub(crate) struct ByHand(Mutex<HashSet<(u64, ObjectId)>>);

impl ByHand {
    pub(super) fn note(&self, connection: &Connection, id: &ObjectId) {
        self.0.lock().insert((connection.generation, *id));
    }

    pub(super) fn proved(&self, connection: &Connection, id: &ObjectId) -> bool {
        self.0.lock().contains(&(connection.generation, *id))
    }
}

/// Whether a key's uses are counted. PKCS#11 has no attribute for that, so the administrator says it.
pub(super) fn is_counted(options: &Options, object: &Object) -> bool {
    let mut counted = options.counted.iter();
    counted.any(|uri| uri.matches_object(object))
}
