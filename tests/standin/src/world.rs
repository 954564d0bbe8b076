//! State between calls. Its lock is never held while a token works.

use std::collections::BTreeMap;
use std::sync::Arc;

use hsmux_token::Verb;
use hsmux_token::ck::*;
use parking_lot::Mutex;

use crate::control::{ControlFile, TokenControl};
use crate::device::Device;

static WORLD: Mutex<Option<World>> = Mutex::new(None);

/// An initialised module.
#[derive(Default)]
pub struct World {
    sessions: BTreeMap<CK_SESSION_HANDLE, Session>,
    last: CK_SESSION_HANDLE,
    /// The logged-in user of each slot, shared by all sessions of a token.
    users: BTreeMap<CK_SLOT_ID, CK_USER_TYPE>,
    devices: BTreeMap<CK_SLOT_ID, Arc<Device>>,
}

/// One session.
pub struct Session {
    /// Its slot.
    pub slot: CK_SLOT_ID,
    /// Handles that C_FindObjects has still to return.
    pub found: Option<Vec<CK_OBJECT_HANDLE>>,
    /// An operation that an Init call has started.
    pub active: Option<Active>,
}

/// An operation between its two calls.
#[derive(Clone)]
pub struct Active {
    pub verb: Verb,
    pub mechanism: CK_MECHANISM_TYPE,
    pub iv: [u8; 16],
    pub key: CK_OBJECT_HANDLE,
}

impl World {
    /// C_Initialize.
    pub fn begin() -> Result<(), CK_RV> {
        let mut world = WORLD.lock();
        if world.is_some() {
            return Err(CKR_CRYPTOKI_ALREADY_INITIALIZED);
        }
        *world = Some(Self::default());
        Ok(())
    }

    /// C_Finalize.
    pub fn end() -> Result<(), CK_RV> {
        let ended = WORLD.lock().take();
        ended.map(drop).ok_or(CKR_CRYPTOKI_NOT_INITIALIZED)
    }

    /// Accesses the world, briefly.
    pub fn with<T>(f: impl FnOnce(&mut Self) -> Result<T, CK_RV>) -> Result<T, CK_RV> {
        f(WORLD.lock().as_mut().ok_or(CKR_CRYPTOKI_NOT_INITIALIZED)?)
    }

    /// Accesses a session and its token's settings.
    pub fn with_session<T>(
        handle: CK_SESSION_HANDLE,
        f: impl FnOnce(&mut Session, &TokenControl) -> Result<T, CK_RV>,
    ) -> Result<T, CK_RV> {
        let control = ControlFile::now()?;
        Self::with(|world| {
            let session = world.session(handle)?;
            let token = control
                .token(session.slot)
                .map_err(|_| CKR_DEVICE_REMOVED)?;
            f(session, token)
        })
    }

    /// A session by its handle.
    pub fn session(&mut self, handle: CK_SESSION_HANDLE) -> Result<&mut Session, CK_RV> {
        self.sessions
            .get_mut(&handle)
            .ok_or(CKR_SESSION_HANDLE_INVALID)
    }

    /// C_OpenSession.
    pub fn open(
        &mut self,
        slot: CK_SLOT_ID,
        token: &TokenControl,
    ) -> Result<CK_SESSION_HANDLE, CK_RV> {
        let open = self.sessions.values().filter(|s| s.slot == slot).count();
        if token.sessions > 0 && open >= token.sessions {
            return Err(CKR_SESSION_COUNT);
        }
        self.last += 1;
        let session = Session {
            slot,
            found: None,
            active: None,
        };
        self.sessions.insert(self.last, session);
        Ok(self.last)
    }

    /// C_CloseSession: with a token's last session its login ends.
    pub fn close(&mut self, handle: CK_SESSION_HANDLE) -> Result<(), CK_RV> {
        let closed = self.sessions.remove(&handle);
        let slot = closed.ok_or(CKR_SESSION_HANDLE_INVALID)?.slot;
        if !self.sessions.values().any(|s| s.slot == slot) {
            self.users.remove(&slot);
        }
        Ok(())
    }

    /// C_CloseAllSessions.
    pub fn close_all(&mut self, slot: CK_SLOT_ID) {
        self.sessions.retain(|_, session| session.slot != slot);
        self.users.remove(&slot);
    }

    /// The logged-in user.
    pub fn user(&self, slot: CK_SLOT_ID) -> Option<CK_USER_TYPE> {
        self.users.get(&slot).copied()
    }

    /// Logs a user in or out.
    pub fn set_user(&mut self, slot: CK_SLOT_ID, user: Option<CK_USER_TYPE>) {
        match user {
            Some(user) => self.users.insert(slot, user),
            None => self.users.remove(&slot),
        };
    }

    /// The device in a slot.
    pub fn device(&mut self, slot: CK_SLOT_ID) -> Arc<Device> {
        Arc::clone(self.devices.entry(slot).or_default())
    }
}
