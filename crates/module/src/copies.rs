//! Copies of keys in use as session objects (C_CopyObject, PKCS#11 3.0 section 5.7.2): `docs/internals/key-copies.md`.
//! The original is checked again within [`LOOKED`]. If a copy fails, the operation runs with the key itself.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hsmux_token::ck::{
    CKA_DECRYPT, CKA_ENCRYPT, CKA_SIGN, CKA_TOKEN, CKA_VERIFY, CKR_SESSION_HANDLE_INVALID,
};
use hsmux_token::sync::Mutex;
use hsmux_token::{Attributes, NameHasher, NameMap, ObjectId, Result, TokenInfo};

use crate::ModuleToken;
use crate::by_name::ByName;
use crate::execute::is_about_handle;
use crate::library::{Handle, Session};
use crate::sessions::Sessions;
use crate::worth::worth;

/// How long a copy is used between checks of its key. After changes of thousands of keys by other processes,
/// SoftHSM takes milliseconds for a check.
const LOOKED: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(1);

/// A key that is used twice within this time is copied.
const SOON: Duration = Duration::from_millis(100);

/// Copies at once. Other keys have none until a copy has not been used for [`OLD`].
const MOST: usize = 64;
const OLD: Duration = Duration::from_secs(2);

/// How often a copy may be replaced: SoftHSM 2.6.1 leaks some memory of each session object until the process ends.
const ROOM: Duration = Duration::from_secs(1);

/// Keys that are remembered as not copyable. If there are more, all are tried again.
const MOST_APART: usize = 4096;

/// The attributes that permit the operations of this crate.
const USES: [u64; 4] = [CKA_ENCRYPT, CKA_DECRYPT, CKA_SIGN, CKA_VERIFY];

/// Copies of the keys of one token.
pub(crate) struct Copies {
    all: ByName<Arc<KeyCopy>>,
    /// Never held across a vendor's call.
    state: Mutex<CopyState>,
    /// Held while a thread makes a copy; others use the key itself meanwhile.
    making: Mutex<()>,
    begun: Instant,
}

#[derive(Default)]
struct CopyState {
    /// The session that holds the copies.
    session: Option<Session>,
    /// The last use without a copy.
    last: Option<(ObjectId, Instant)>,
    /// Keys that cannot be copied (CKA_COPYABLE, for example).
    apart: HashSet<ObjectId, BuildHasherDefault<NameHasher>>,
    /// Counts changes of keys: a copy that is made during a change is discarded.
    edition: u64,
    /// When a copy may be replaced next.
    makes_room: Option<Instant>,
}

struct KeyCopy {
    original: Handle,
    handle: Handle,
    uses: Attributes,
    /// When the original is checked next, in nanoseconds since [`Copies::begun`].
    due: AtomicU64,
}

impl ModuleToken {
    /// The handle to use for a key: that of its copy, if there is one.
    pub(crate) fn in_use(&self, session: Session, key: ObjectId, original: Handle) -> Handle {
        let Some(copies) = &self.copies else {
            return original;
        };
        let now = Instant::now();
        let found = copies.all.get(&key);
        match found.filter(|copy| copy.original == original) {
            Some(copy) if !copies.is_due(&copy, now) => copy.handle,
            Some(copy) if self.is_as_it_was(session, &copy) => {
                let took = now.elapsed();
                let next = copies.nanos(now + took + worth(took, &LOOKED));
                copy.due.store(next, Ordering::Relaxed);
                copy.handle
            }
            Some(_) => {
                copies.end(&self.sessions, key);
                original
            }
            None => self
                .copied(copies, session, key, original, now)
                .unwrap_or(original),
        }
    }

    /// Whether the duration of this use counts for the token's speed: if copies are faster, uses without one do not.
    pub(crate) fn is_usual(&self, key: ObjectId, by_copy: bool) -> bool {
        by_copy
            || self
                .copies
                .as_ref()
                .is_none_or(|copies| copies.has_none(key))
    }

    /// Makes a copy if it is worthwhile, and returns its handle.
    fn copied(
        &self,
        copies: &Copies,
        session: Session,
        key: ObjectId,
        original: Handle,
        now: Instant,
    ) -> Option<Handle> {
        let edition = copies.wants(key, now)?;
        let _turn = copies.making.try_lock()?;
        // The key had another handle before.
        copies.end_those(&self.sessions, |id, copy| {
            *id == key && copy.original != original
        });
        if !copies.has_room(&self.sessions, now) || copies.all.get(&key).is_some() {
            return None;
        }
        match self.copy(copies, session, original) {
            Ok((handle, uses)) => {
                let copy = KeyCopy {
                    original,
                    handle,
                    uses,
                    due: copies.nanos(now + *LOOKED.start()).into(),
                };
                copies.all.insert_all(&[(key, Arc::new(copy))]);
                // A thread that changed the key in the meantime found no copy to end.
                if copies.state.lock().edition != edition {
                    copies.end_those(&self.sessions, |id, _| *id == key);
                    return None;
                }
                Some(handle)
            }
            Err(error) => {
                if error.code() == Some(CKR_SESSION_HANDLE_INVALID) {
                    copies.end_all(&self.sessions);
                // A missing key is reported by the operation itself.
                } else if !is_about_handle(&error) {
                    tracing::debug!(%error, token = self.name, "a key is used without a copy");
                    copies.keep_apart(key);
                }
                None
            }
        }
    }

    fn copy(
        &self,
        copies: &Copies,
        session: Session,
        original: Handle,
    ) -> Result<(Handle, Attributes)> {
        let uses = self.uses(session, original)?;
        let opened = copies.state.lock().session;
        let home = if let Some(home) = opened {
            home
        } else {
            let home = self.sessions.open_more()?;
            *copies.state.lock().session.insert(home)
        };
        let of_session = Attributes::default().with_flag(CKA_TOKEN, false);
        let handle = self.sessions.library().copy(home, original, &of_session)?;
        Ok((handle, uses))
    }

    fn is_as_it_was(&self, session: Session, copy: &KeyCopy) -> bool {
        let uses = self.uses(session, copy.original);
        uses.is_ok_and(|uses| uses == copy.uses)
    }

    fn uses(&self, session: Session, key: Handle) -> Result<Attributes> {
        self.sessions.library().attributes(session, key, &USES)
    }
}

impl Copies {
    /// As configured; by default only for tokens that are known to be faster with copies.
    pub fn of(info: &TokenInfo, wanted: Option<bool>) -> Option<Self> {
        let wanted = wanted.unwrap_or_else(|| info.manufacturer.starts_with("SoftHSM"));
        wanted.then(|| Self {
            all: ByName::default(),
            state: Mutex::default(),
            making: Mutex::default(),
            begun: Instant::now(),
        })
    }

    /// Ends the copy of a key that has changed or been deleted.
    pub fn end(&self, sessions: &Sessions, key: ObjectId) {
        self.state.lock().edition += 1;
        self.end_those(sessions, |id, _| *id == key);
    }

    /// Ends copies of deleted objects.
    pub fn end_lost(&self, sessions: &Sessions, lost: &[Handle]) {
        self.end_those(sessions, |_, copy| lost.contains(&copy.original));
    }

    /// Ends all copies and their session, for other work or at the end.
    pub fn end_all(&self, sessions: &Sessions) {
        self.all.replace(NameMap::default());
        let session = {
            let mut state = self.state.lock();
            state.edition += 1;
            state.session.take()
        };
        if let Some(session) = session {
            sessions.close(session);
        }
    }

    /// Decides whether to copy a key that has no copy, and returns the current count of changes for the copy.
    fn wants(&self, key: ObjectId, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        let before = state.last.replace((key, now));
        let again = before.is_some_and(|(last, at)| last == key && now - at < SOON);
        (again && !state.apart.contains(&key)).then_some(state.edition)
    }

    /// Never copies this key again.
    fn keep_apart(&self, key: ObjectId) {
        let apart = &mut self.state.lock().apart;
        if apart.len() >= MOST_APART {
            apart.clear();
        }
        apart.insert(key);
    }

    /// Whether the key is never copied.
    fn has_none(&self, key: ObjectId) -> bool {
        self.state.lock().apart.contains(&key)
    }

    /// Whether this thread, and no other, has to check the original now.
    fn is_due(&self, copy: &KeyCopy, now: Instant) -> bool {
        let (later, due) = (now + *LOOKED.end(), copy.due.load(Ordering::Relaxed));
        let order = Ordering::Relaxed;
        self.nanos(now) > due
            && copy
                .due
                .compare_exchange(due, self.nanos(later), order, order)
                .is_ok()
    }

    fn nanos(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begun).as_nanos() as u64
    }

    fn has_room(&self, sessions: &Sessions, now: Instant) -> bool {
        if self.all.len() < MOST {
            return true;
        }
        {
            let mut state = self.state.lock();
            if state.makes_room.is_some_and(|next| now < next) {
                return false;
            }
            state.makes_room = Some(now + ROOM);
        }
        let due = |copy: &Arc<KeyCopy>| copy.due.load(Ordering::Relaxed);
        let Some((oldest, due)) = self.all.least(due) else {
            return true;
        };
        let unused = self.nanos(now).saturating_sub(due);
        if unused > OLD.as_nanos() as u64 {
            self.end_those(sessions, |id, _| *id == oldest);
        }
        self.all.len() < MOST
    }

    fn end_those(&self, sessions: &Sessions, which: impl Fn(&ObjectId, &KeyCopy) -> bool) {
        let ended = self.all.take(|id, copy| which(id, copy));
        if ended.is_empty() {
            return;
        }
        // Copies end with their session.
        let Some(home) = self.state.lock().session else {
            return;
        };
        for copy in ended {
            if let Err(error) = sessions.library().destroy(home, copy.handle) {
                tracing::debug!(%error, "a copy of a key was gone already");
            }
        }
    }
}
