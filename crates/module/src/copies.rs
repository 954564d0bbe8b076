//! Copies of keys in use as session objects (C_CopyObject, PKCS#11 3.0 section 5.7.2), within the token. Where a
//! token keeps its keys in files, each use of one looks at the files anew, and a session object has none (SoftHSM:
//! C_SignInit 27 us and 15, C_EncryptInit 18 us and 2).
//!
//! The key itself is looked at again after a time that [`LOOKED`] bounds: no longer is one used that another process
//! has deleted, or whose uses it has changed. What does not go well with a copy goes the usual way: errors are always
//! the key's own.

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

/// How long after a look at a key its copy is used: where other processes change thousands of keys, SoftHSM's look
/// into its folder takes milliseconds.
const LOOKED: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(1);

/// A key that is used twice within this is copied.
const SOON: Duration = Duration::from_millis(100);

/// So many at once: others are used the usual way until one of these has not been used for [`OLD`].
const MOST: usize = 64;
const OLD: Duration = Duration::from_secs(2);

/// How often one makes room for another: SoftHSM 2.6.1 keeps a little of each session object until it ends.
const ROOM: Duration = Duration::from_secs(1);

/// So many keys are remembered as not to be copied; where there are more, all of them are tried once more.
const MOST_APART: usize = 4096;

/// What may be done with a key, as far as it is done here.
const USES: [u64; 4] = [CKA_ENCRYPT, CKA_DECRYPT, CKA_SIGN, CKA_VERIFY];

/// Those of one token.
pub(crate) struct Copies {
    all: ByName<Arc<KeyCopy>>,
    /// Never held across a vendor's call.
    state: Mutex<State>,
    /// Of one who makes a copy; others use the key as it is meanwhile.
    making: Mutex<()>,
    begun: Instant,
}

#[derive(Default)]
struct State {
    /// The one they live in.
    session: Option<Session>,
    /// What was used last without a copy, and when.
    last: Option<(ObjectId, Instant)>,
    /// Keys that cannot be copied (CKA_COPYABLE, for example).
    apart: HashSet<ObjectId, BuildHasherDefault<NameHasher>>,
    /// How often keys have changed: a copy that is being made then is not kept.
    edition: u64,
    /// When one may make room for another next.
    makes_room: Option<Instant>,
}

struct KeyCopy {
    original: Handle,
    handle: Handle,
    uses: Attributes,
    /// When the original is looked at next, in nanoseconds since [`Copies::begun`].
    due: AtomicU64,
}

impl ModuleToken {
    /// The handle to use a key by: that of its copy, where there is one.
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

    /// Whether this use of a key says how fast the token is: where copies are faster, one without does not.
    pub(crate) fn is_usual(&self, key: ObjectId, by_copy: bool) -> bool {
        by_copy
            || self
                .copies
                .as_ref()
                .is_none_or(|copies| copies.has_none(key))
    }

    /// The handle of a new copy, where it is worth one.
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
        // One of a handle that the key had before.
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
                // Whoever has changed the key since found no copy to end.
                if copies.state.lock().edition != edition {
                    copies.end_those(&self.sessions, |id, _| *id == key);
                    return None;
                }
                Some(handle)
            }
            Err(error) => {
                if error.code() == Some(CKR_SESSION_HANDLE_INVALID) {
                    copies.end_all(&self.sessions);
                // That a key is gone is said where it is used.
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
    /// Where they are wanted; where nobody has said so, of tokens in which they are known to be faster.
    pub fn of(info: &TokenInfo, wanted: Option<bool>) -> Option<Self> {
        let wanted = wanted.unwrap_or_else(|| info.manufacturer.starts_with("SoftHSM"));
        wanted.then(|| Self {
            all: ByName::default(),
            state: Mutex::default(),
            making: Mutex::default(),
            begun: Instant::now(),
        })
    }

    /// Of a key that has changed or gone.
    pub fn end(&self, sessions: &Sessions, key: ObjectId) {
        self.state.lock().edition += 1;
        self.end_those(sessions, |id, _| *id == key);
    }

    /// Of objects that are no more.
    pub fn end_lost(&self, sessions: &Sessions, lost: &[Handle]) {
        self.end_those(sessions, |_, copy| lost.contains(&copy.original));
    }

    /// All, with the session that they live in: somebody needs a session, or it is the end.
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

    /// Whether the key, which has no copy, is worth one: how often keys have changed, for who makes it.
    fn wants(&self, key: ObjectId, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        let before = state.last.replace((key, now));
        let again = before.is_some_and(|(last, at)| last == key && now - at < SOON);
        (again && !state.apart.contains(&key)).then_some(state.edition)
    }

    /// From now on it is used as it is.
    fn keep_apart(&self, key: ObjectId) {
        let apart = &mut self.state.lock().apart;
        if apart.len() >= MOST_APART {
            apart.clear();
        }
        apart.insert(key);
    }

    /// Whether the key is always used without one.
    fn has_none(&self, key: ObjectId) -> bool {
        self.state.lock().apart.contains(&key)
    }

    /// Whether the caller, and nobody else now, has to look at the original.
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
        // Without their session they are gone already.
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
