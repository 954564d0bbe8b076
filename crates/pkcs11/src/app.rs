//! All that is between C_Initialize and C_Finalize.

use std::sync::Arc;

use hsmux_token::ck::*;
use hsmux_token::sync::Turn;
use hsmux_token::sync::atomic::{AtomicBool, Ordering};
use hsmux_token::{Class, ObjectRef, Operation};

use crate::backend::Backend;
use crate::crypt::InitChecks;
use crate::object::{ObjectEntry, ObjectLocation, Objects};
use crate::rv::{Result, Rv};
use crate::session::Sessions;

/// The most that one operation asks of a member's generator, in bytes.
const RANDOM: usize = 1 << 16;

/// The library as one application has initialised it.
pub struct App {
    /// The backend: the daemon, or a pool in this process.
    pub backend: Box<dyn Backend>,
    /// The open sessions.
    pub sessions: Sessions,
    /// The objects with handles.
    pub objects: Objects,
    /// The uncommon mechanism parameters that members take.
    pub init_checks: InitChecks,
    user: AtomicBool,
    /// Held while the login begins or ends.
    pub(crate) login_turn: Turn<()>,
    /// A PIN was refused since the last one that was not.
    pub(crate) pin_refused: AtomicBool,
}

impl App {
    /// A library without sessions; the backend need not be there yet.
    pub fn new(backend: Box<dyn Backend>) -> Self {
        Self {
            backend,
            sessions: Sessions::default(),
            objects: Objects::default(),
            init_checks: InitChecks::default(),
            user: AtomicBool::new(false),
            login_turn: Turn::default(),
            pin_refused: AtomicBool::new(false),
        }
    }

    /// True after a successful C_Login.
    pub fn is_user(&self) -> bool {
        self.user.load(Ordering::SeqCst)
    }

    pub(crate) fn set_user(&self, user: bool) {
        // In one order with the count of sessions: whoever changes one of both then looks at the other.
        self.user.store(user, Ordering::SeqCst);
    }

    /// True if private objects may be used: after C_Login, or without a PIN to give.
    pub fn sees_private(&self) -> bool {
        self.is_user() || self.objects.catalogue().logged_in
    }

    /// Looks whether the token is there, and reads the catalogue if it has changed.
    pub fn refresh(&self) -> Result {
        self.objects.refresh(&*self.backend)
    }

    /// The object of a handle that was given as a key's.
    pub fn key(&self, handle: u64) -> Result<Arc<ObjectEntry>> {
        let entry = self
            .objects
            .get(handle)
            .map_err(|_| Rv(CKR_KEY_HANDLE_INVALID))?;
        match entry.class {
            Class::PUBLIC_KEY | Class::PRIVATE_KEY | Class::SECRET_KEY => Ok(entry),
            _ => Err(Rv(CKR_KEY_HANDLE_INVALID)),
        }
    }

    /// C_GenerateRandom: `take` gets the bytes, each with its place.
    pub fn random(&self, session: u64, len: usize, mut take: impl FnMut(usize, &[u8])) -> Result {
        self.sessions.get(session)?;
        for at in (0..len).step_by(RANDOM) {
            let len = RANDOM.min(len - at) as u32;
            let random = self.backend.execute(&Operation::Random { len })?;
            let random = random.into_bytes()?;
            if random.len() != len as usize {
                return Err(Rv(CKR_DEVICE_ERROR));
            }
            take(at, &random);
        }
        Ok(())
    }

    /// The handle of a new object. A private session object ends if another thread has logged out since its template
    /// was checked.
    pub(crate) fn made(&self, handle: u64) -> Result<u64> {
        let is_over = |entry: &ObjectEntry| !entry.is_token() && entry.is_private();
        if self.sees_private() || !self.objects.get(handle).is_ok_and(|entry| is_over(&entry)) {
            return Ok(handle);
        }
        self.end_objects(|entry| entry.handle == handle);
        Err(Rv(CKR_USER_NOT_LOGGED_IN))
    }

    /// Ends session objects: in this process, and on the members that hold them.
    pub(crate) fn end_objects(&self, goes: impl Fn(&ObjectEntry) -> bool) {
        for entry in self.objects.remove_all(goes) {
            if let ObjectLocation::Member(object) = entry.location {
                let object = ObjectRef::Session(object);
                // An error has no receiver here; the object dies with its worker at the latest.
                let _ = self.backend.execute(&Operation::Destroy { object });
            }
        }
    }
}
