//! Copies of keys in use as session objects (C_CopyObject, PKCS#11 3.0 section 5.7.2), within the token. Where a
//! token keeps its keys in files, each use of one looks at the files anew, and a session object has none (SoftHSM:
//! C_SignInit 27 us and 15, C_EncryptInit 18 us and 2).
//!
//! The key itself is looked at every [`SURE`], or less often where a look takes long: no longer is one used that another process has deleted, or
//! whose uses it has changed. What does not go well with a copy goes the usual way: errors are always the key's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use hsmux_token::ck::{CKA_DECRYPT, CKA_ENCRYPT, CKA_SIGN, CKA_TOKEN, CKA_VERIFY};
use hsmux_token::sync::Mutex;
use hsmux_token::{Attributes, NameMap, ObjectId, Result, TokenInfo};

use crate::ModuleToken;
use crate::execute::is_about_handle;
use crate::library::{Handle, Session};
use crate::sessions::Sessions;

/// How long after a look at a key its copy is used at least; a key that is used twice within this is copied.
const SURE: Duration = Duration::from_millis(100);

/// So many times as long as the look has taken, up to [`LONGEST`]: where other processes change thousands of keys
/// SoftHSM's look into its folder takes milliseconds.
const WORTH: u32 = 200;
const LONGEST: Duration = Duration::from_secs(1);

/// So many at once: others are used the usual way until one of these has not been used for [`OLD`].
const MOST: usize = 64;
const OLD: Duration = Duration::from_secs(2);

/// What may be done with a key, as far as it is done here.
const USES: [u64; 4] = [CKA_ENCRYPT, CKA_DECRYPT, CKA_SIGN, CKA_VERIFY];

/// Those of one token.
pub(crate) struct Copies {
    all: ArcSwap<NameMap<ObjectId, Arc<KeyCopy>>>,
    /// Of one who makes or destroys copies; nobody waits for it to use a key.
    state: Mutex<State>,
    begun: Instant,
}

#[derive(Default)]
struct State {
    /// The one they live in.
    session: Option<Session>,
    /// What was used last without a copy, and when.
    last: Option<(ObjectId, Instant)>,
    /// Keys that cannot be copied (CKA_COPYABLE, for example).
    apart: Vec<ObjectId>,
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
        let found = copies.all.load().get(&key).map(Arc::clone);
        match found.filter(|copy| copy.original == original) {
            Some(copy) if !copies.is_due(&copy, now) => copy.handle,
            Some(copy) if self.is_as_it_was(session, &copy) => {
                let took = now.elapsed();
                let sure = (took * WORTH).clamp(SURE, LONGEST);
                copy.due
                    .store(copies.nanos(now + took + sure), Ordering::Relaxed);
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
        let mut state = copies.state.try_lock()?;
        let before = state.last.replace((key, now));
        let again = before.is_some_and(|(last, at)| last == key && now - at < SURE);
        if !again || state.apart.contains(&key) || !copies.has_room(&self.sessions, &state, now) {
            return None;
        }
        // One of a handle that the key had before.
        copies.end_those(&self.sessions, &state, |id, _| *id == key);
        match self.copy(&mut state, session, original) {
            Ok((handle, uses)) => {
                let due = copies.nanos(now + SURE).into();
                let copy = Arc::new(KeyCopy {
                    original,
                    handle,
                    uses,
                    due,
                });
                copies.change(|all| all.insert(key, Arc::clone(&copy)));
                Some(handle)
            }
            Err(error) => {
                // That a key is gone is said where it is used.
                if !is_about_handle(&error) {
                    tracing::debug!(%error, token = self.name, "a key is used without a copy");
                    state.apart.push(key);
                }
                None
            }
        }
    }

    fn copy(
        &self,
        state: &mut State,
        session: Session,
        original: Handle,
    ) -> Result<(Handle, Attributes)> {
        let uses = self.uses(session, original)?;
        let home = match state.session {
            Some(session) => session,
            None => *state.session.insert(self.sessions.open_more()?),
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
            all: ArcSwap::default(),
            state: Mutex::default(),
            begun: Instant::now(),
        })
    }

    /// Whether the key is always used without one.
    fn has_none(&self, key: ObjectId) -> bool {
        self.state.lock().apart.contains(&key)
    }

    /// Of a key that has changed or gone.
    pub fn end(&self, sessions: &Sessions, key: ObjectId) {
        self.end_those(sessions, &self.state.lock(), |id, _| *id == key);
    }

    /// Of objects that are no more.
    pub fn end_lost(&self, sessions: &Sessions, lost: &[Handle]) {
        self.end_those(sessions, &self.state.lock(), |_, copy| {
            lost.contains(&copy.original)
        });
    }

    /// All, with the session that they live in.
    pub fn end_all(&self, sessions: &Sessions) {
        self.all.store(Arc::default());
        if let Some(session) = self.state.lock().session.take() {
            sessions.close(session);
        }
    }

    /// Whether the caller, and nobody else now, has to look at the original.
    fn is_due(&self, copy: &KeyCopy, now: Instant) -> bool {
        let (later, due) = (now + LONGEST, copy.due.load(Ordering::Relaxed));
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

    fn has_room(&self, sessions: &Sessions, state: &State, now: Instant) -> bool {
        if self.all.load().len() >= MOST {
            let now = self.nanos(now);
            self.end_those(sessions, state, |_, copy| {
                now.saturating_sub(copy.due.load(Ordering::Relaxed)) > OLD.as_nanos() as u64
            });
        }
        self.all.load().len() < MOST
    }

    fn end_those(
        &self,
        sessions: &Sessions,
        state: &State,
        which: impl Fn(&ObjectId, &KeyCopy) -> bool,
    ) {
        let all = self.all.load();
        let mut ended = all.iter().filter(|(id, copy)| which(id, copy)).peekable();
        if ended.peek().is_none() {
            return;
        }
        self.change(|all| all.retain(|id, copy| !which(id, copy)));
        for (_, copy) in ended {
            let home = state.session.unwrap_or_default();
            if let Err(error) = sessions.library().destroy(home, copy.handle) {
                tracing::debug!(%error, "a copy of a key was gone already");
            }
        }
    }

    fn change<R>(&self, mut change: impl FnMut(&mut NameMap<ObjectId, Arc<KeyCopy>>) -> R) {
        self.all.rcu(|all| {
            let mut all = NameMap::clone(all);
            change(&mut all);
            all
        });
    }
}
