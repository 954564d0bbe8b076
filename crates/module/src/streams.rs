//! The streams of one token, each in a session of its own.

use std::collections::HashSet;
use std::time::Instant;

use hsmux_token::ck::{CKR_SESSION_COUNT, CKR_SESSION_HANDLE_INVALID};
use hsmux_token::sync::Mutex;
use hsmux_token::{Error, ObjectId, Result, Verb};

use crate::library::Session;
use crate::sessions::Sessions;
use crate::stream::{SOON, Stream};

/// Streams at once: encryption and decryption with two keys. Other keys take turns.
const MOST: usize = 4;

/// Keys that are remembered as unsuitable. If there are more, all are tried again.
const MOST_APART: usize = 4096;

/// All streams of a token.
#[derive(Default)]
pub(crate) struct Streams {
    state: Mutex<StreamState>,
}

#[derive(Default)]
struct StreamState {
    /// Idle streams, the most recently used last.
    idle: Vec<Stream>,
    /// Number of sessions, including those in use.
    open: usize,
    /// Counts changes of keys: a stream that is in use during a change is not returned.
    edition: u64,
    /// Keys that the token refuses to use this way, for example because of CKA_ALLOWED_MECHANISMS.
    apart: HashSet<ObjectId>,
    /// The last text without a stream.
    alone: Option<(Verb, ObjectId, Instant)>,
}

impl Streams {
    /// Uses no streams for this key from now on.
    pub fn keep_apart(&self, key: ObjectId) {
        let apart = &mut self.state.lock().apart;
        if apart.len() >= MOST_APART {
            apart.clear();
        }
        apart.insert(key);
    }

    /// Takes a stream that can continue.
    pub fn find(&self, verb: Verb, key: ObjectId) -> Option<Stream> {
        let idle = &mut self.state.lock().idle;
        let index = idle.iter().rposition(|stream| stream.is_of(verb, key))?;
        idle[index].is_young().then(|| idle.remove(index))
    }

    /// Whether a text without a stream has neighbours: another text shortly before, or a stream that has ended.
    pub fn follows(&self, verb: Verb, key: ObjectId) -> bool {
        let mut state = self.state.lock();
        let mut idle = state.idle.iter();
        let had = idle.any(|stream| stream.is_of(verb, key));
        let now = Instant::now();
        let before = state.alone.replace((verb, key, now));
        let soon = |(other, of, at)| (other, of) == (verb, key) && now - at < SOON;
        had || before.is_some_and(soon)
    }

    /// The current count of changes, if a stream may start with this key.
    pub fn edition(&self, key: ObjectId) -> Option<u64> {
        let state = self.state.lock();
        (!state.apart.contains(&key)).then_some(state.edition)
    }

    /// Returns a stream for the next text.
    pub fn leave(&self, sessions: &Sessions, stream: Stream) {
        let mut state = self.state.lock();
        if state.edition == stream.edition {
            return state.idle.push(stream);
        }
        drop(state);
        self.close(sessions, stream.session);
    }

    /// A session for a new stream: that of the previous one, a new one, or that of the least recently used.
    /// `None` if the token has none left, or all are in use.
    pub fn session(
        &self,
        sessions: &Sessions,
        verb: Verb,
        key: ObjectId,
    ) -> Result<Option<Session>> {
        let mut state = self.state.lock();
        let mut idle = state.idle.iter();
        let before = idle.position(|stream| stream.is_of(verb, key) && !stream.is_young());
        let mut idle = state.idle.iter();
        let old = before.or_else(|| idle.position(|stream| !stream.is_young()));
        let index = old.or((state.open >= MOST && !state.idle.is_empty()).then_some(0));
        let ended = index.map(|index| state.idle.remove(index));
        if ended.is_none() && state.open >= MOST {
            return Ok(None);
        }
        state.open += usize::from(ended.is_none());
        drop(state);
        if let Some(stream) = ended {
            let session = stream.session;
            if sessions.library().end_parts(session, stream.verb()).is_ok() {
                return Ok(Some(session));
            }
            sessions.close(session);
        }
        match sessions.open_more() {
            Ok(session) => Ok(Some(session)),
            Err(error) => {
                self.state.lock().open -= 1;
                if error.code() == Some(CKR_SESSION_COUNT) {
                    return Ok(None);
                }
                Err(error)
            }
        }
    }

    /// Closes a session whose operation may be incomplete.
    pub fn close(&self, sessions: &Sessions, session: Session) {
        sessions.close(session);
        self.state.lock().open -= 1;
    }

    /// Ends the streams of a key that has changed or been deleted.
    pub fn end(&self, sessions: &Sessions, key: ObjectId) {
        let mut state = self.state.lock();
        state.apart.remove(&key);
        state.edition += 1;
        for stream in &mut state.idle {
            stream.edition += 1;
        }
        let ended: Vec<_> = state
            .idle
            .extract_if(.., |stream| stream.key() == key)
            .collect();
        state.open -= ended.len();
        drop(state);
        for stream in ended {
            sessions.close(stream.session);
        }
    }

    /// Ends all idle streams, for other work or at the end.
    pub fn close_idle(&self, sessions: &Sessions) {
        let mut state = self.state.lock();
        let idle = std::mem::take(&mut state.idle);
        state.open -= idle.len();
        drop(state);
        for stream in idle {
            sessions.close(stream.session);
        }
    }
}

/// Whether the error means too few sessions or a lost one.
pub(crate) fn is_about_sessions(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(CKR_SESSION_COUNT | CKR_SESSION_HANDLE_INVALID)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_apart_do_not_add_up() {
        let streams = Streams::default();
        let key = |number: usize| ObjectId::of_data(b"", b"", &number.to_be_bytes());
        for number in 0..=MOST_APART {
            streams.keep_apart(key(number));
            assert_eq!(streams.edition(key(number)), None);
        }
        // The first keys are tried again.
        assert_eq!(streams.edition(key(0)), Some(0));
        assert_eq!(streams.state.lock().apart.len(), 1);
    }
}
