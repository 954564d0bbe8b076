//! Handles: a number for each object, the same for as long as the library is initialised.

use std::collections::HashMap;

use hsmux_token::ObjectId;

/// Gives out handles; 0 is none's (CK_INVALID_HANDLE).
#[derive(Default)]
pub struct HandleNumbers {
    last: u64,
    of: HashMap<ObjectId, u64>,
}

impl HandleNumbers {
    /// The handle of a token object, also when it was away in between.
    pub fn of(&mut self, id: ObjectId) -> u64 {
        let last = &mut self.last;
        *self.of.entry(id).or_insert_with(|| {
            *last += 1;
            *last
        })
    }

    /// A handle that was never given.
    pub fn fresh(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}
