//! Keys with use counters: each proof would be a use, so they are proved when a person asks for it.

use hsmux_token::{Object, ObjectId, Uri, ck};

use crate::Options;
use crate::record::SeatConnection;

/// Why such a key does not serve, and what to do.
pub(super) fn counted(object: &Object) -> String {
    let attributes = &object.attributes;
    let uri = Uri {
        object: attributes
            .text(ck::CKA_LABEL)
            .filter(|label| !label.is_empty()),
        id: attributes
            .get(ck::CKA_ID)
            .filter(|id| !id.is_empty())
            .map(<[u8]>::to_vec),
        class: Some(object.id.class),
        ..Uri::default()
    };
    format!(
        "it has a use counter ([pool] counted), and a proof would be a use; hsmux key verify '{uri}' proves it"
    )
}

impl SeatConnection {
    /// True if a person has had such a key proved on this connection.
    pub(super) fn is_proved_by_hand(&self, id: &ObjectId) -> bool {
        self.by_hand.lock().contains(id)
    }
}

/// True if a key's uses are counted. PKCS#11 has no attribute for that, so the administrator says it.
pub(super) fn is_counted(options: &Options, object: &Object) -> bool {
    let mut counted = options.counted.iter();
    counted.any(|uri| uri.matches_object(object))
}
