//! C_FindObjects: the handles of what matches.

use std::sync::Arc;

use hsmux_token::Attributes;
use hsmux_token::ck::{CKR_OPERATION_ACTIVE, CKR_OPERATION_NOT_INITIALIZED};

use super::{AttributeValue, ObjectEntry, Objects};
use crate::app::App;
use crate::rv::{Result, Rv};

impl Objects {
    /// The handles of the objects that have every attribute of the template, the oldest first.
    ///
    /// A value that the token keeps to itself matches nothing.
    pub fn find(&self, template: &Attributes, logged_in: bool) -> Vec<u64> {
        let matches = |entry: &Arc<ObjectEntry>| {
            let visible = logged_in || entry.is_token() || !entry.is_private();
            (visible && entry.matches(template)).then_some(entry.handle)
        };
        let mut found: Vec<u64> = self.catalogue().iter().filter_map(matches).collect();
        found.extend(self.of_sessions().iter().filter_map(matches));
        found.sort_unstable();
        found
    }
}

impl App {
    /// C_FindObjectsInit: what is found is fixed from here on.
    pub fn search(&self, session: u64, template: &Attributes) -> Result {
        let session = self.sessions.get(session)?;
        let mut state = session.state();
        if state.search.is_some() {
            return Err(Rv(CKR_OPERATION_ACTIVE));
        }
        self.refresh()?;
        let found = self.objects.find(template, self.sees_private());
        state.search = Some(found.into_iter());
        Ok(())
    }

    /// C_FindObjects.
    pub fn next_found(&self, session: u64, max: usize) -> Result<Vec<u64>> {
        let session = self.sessions.get(session)?;
        let mut state = session.state();
        let search = state.search.as_mut();
        let search = search.ok_or(Rv(CKR_OPERATION_NOT_INITIALIZED))?;
        Ok(search.take(max).collect())
    }

    /// C_FindObjectsFinal.
    pub fn end_search(&self, session: u64) -> Result {
        let search = self.sessions.get(session)?.state().search.take();
        search.map(|_| ()).ok_or(Rv(CKR_OPERATION_NOT_INITIALIZED))
    }
}

impl ObjectEntry {
    fn matches(&self, template: &Attributes) -> bool {
        template
            .0
            .iter()
            .all(|wanted| match self.value(wanted.kind) {
                AttributeValue::Known(value) => *value == *wanted.value,
                AttributeValue::Sensitive | AttributeValue::Unknown => false,
            })
    }
}
