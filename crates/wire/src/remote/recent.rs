//! The connections that somebody has made to one token: whoever needs the token in place takes the newest.

use std::sync::{Arc, Weak};

use hsmux_token::sync::Mutex;

use super::RemoteToken;

/// Connections in the order in which they were made. Its owner may keep an earlier one in place of the newest.
#[derive(Default)]
pub struct RecentTokens(Mutex<Vec<Weak<RemoteToken>>>);

impl RecentTokens {
    /// Adds a new connection.
    pub fn add(&self, token: &Arc<RemoteToken>) {
        let mut tokens = self.0.lock();
        tokens.retain(|token| token.strong_count() > 0);
        tokens.push(Arc::downgrade(token));
    }

    /// The newest connection that has not ended.
    pub fn newest(&self) -> Option<Arc<RemoteToken>> {
        // A token that is dropped here may complete requests, so the lock is not held.
        let tokens: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        tokens.into_iter().rev().find(|token| !token.is_lost())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use hsmux_token::{Token, TokenInfo};

    use super::*;
    use crate::{Link, Reactor, VERSION};

    fn connect(reactor: &Arc<Reactor>) -> (Arc<RemoteToken>, UnixStream) {
        let (lane, far) = UnixStream::pair().unwrap();
        let link = Link {
            name: "the token of test".into(),
            info: TokenInfo::default(),
            version: VERSION,
            lanes: vec![lane.into()],
            admin: None,
            depth: 1,
            one_frame: false,
            peer: Box::new(()),
        };
        (RemoteToken::start(Arc::clone(reactor), link).unwrap(), far)
    }

    /// A pool that does not take a new connection into service gives it up, and goes on with the earlier one.
    #[test]
    fn an_earlier_connection_is_used_when_the_newest_has_ended() {
        let reactor = Reactor::start().unwrap();
        let recent = RecentTokens::default();
        assert!(recent.newest().is_none());
        let (first, _first_far) = connect(&reactor);
        let (second, _second_far) = connect(&reactor);
        recent.add(&first);
        recent.add(&second);
        assert!(Arc::ptr_eq(&recent.newest().unwrap(), &second));
        second.abort("a test");
        assert!(Arc::ptr_eq(&recent.newest().unwrap(), &first));
        drop(first);
        assert!(recent.newest().is_none());
    }
}
