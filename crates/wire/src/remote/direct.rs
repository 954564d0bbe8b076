//! Direct connections of a token that is a pool: its workers serve uses of one key on them.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use hsmux_token::fork::Unshared;
use hsmux_token::{
    Batch, Done, Error, Kind, NameMap, ObjectId, Outcome, Request, Result, Scope, Token, TokenInfo,
};

use super::link_state::LinkState;
use super::{Link, RemoteToken};
use crate::KNOWS_SHARED_FRAMES;
use crate::direct::{MOST_USES, key_of_short_use};

/// A use that takes longer is repeated at the pool, which handles a worker that hangs.
const PATIENCE: Duration = Duration::from_secs(1);

/// The direct connections, by key. Their requests go on at the pool when they are dropped.
#[derive(Default)]
pub(super) struct DirectTokens(ArcSwap<TokensOfKeys>);

type TokensOfKeys = NameMap<ObjectId, Arc<RemoteToken>>;

impl RemoteToken {
    /// Sends uses of this key on these connections from now on, until one of them ends. The pool has handed them over.
    pub fn use_directly(
        &self,
        key: ObjectId,
        connections: Vec<Unshared<UnixStream>>,
    ) -> Result<()> {
        let lanes = u32::try_from(connections.len()).unwrap_or(u32::MAX);
        let token = Self::start(
            Arc::clone(&self.reactor),
            Link {
                name: format!("a worker of {}", self.state.name),
                info: TokenInfo {
                    lanes,
                    ..TokenInfo::clone(&self.state.info)
                },
                version: self.state.version,
                lanes: connections,
                admin: None,
                depth: if self.state.version < KNOWS_SHARED_FRAMES {
                    1
                } else {
                    MOST_USES
                },
                one_frame: true,
                peer: Box::new(()),
            },
        )?;
        let direct = Arc::downgrade(&self.direct);
        let of_token = Arc::downgrade(&token);
        self.direct.put(key, &token);
        token.on_lost(Box::new(move |error| {
            tracing::debug!(%error, "direct connections have ended");
            if let Some(direct) = direct.upgrade() {
                direct.remove(&key, &of_token);
            }
        }));
        Ok(())
    }

    /// True if uses of this key take direct connections.
    pub fn is_used_directly(&self, key: &ObjectId) -> bool {
        self.direct.0.load().contains_key(key)
    }

    /// Ends the direct connections of all keys but these.
    pub fn keep_direct(&self, keys: &[ObjectId]) {
        self.direct.change(|of_keys| {
            let before = of_keys.len();
            of_keys.retain(|key, _| keys.contains(key));
            of_keys.len() != before
        });
    }
}

impl DirectTokens {
    /// Submits uses of keys that have direct connections. Returns all other requests.
    pub fn submit(&self, batch: Batch, pool: &Arc<LinkState>) -> Batch {
        let of_keys = self.0.load();
        if of_keys.is_empty() {
            return batch;
        }
        let token_for = |request: &Request| of_keys.get(&key_of_short_use(&request.operation)?);
        batch
            .into_iter()
            .filter_map(|request| match token_for(&request) {
                None => Some(request),
                Some(token) => {
                    token.submit(Batch::from_iter([with_fallback(request, pool)]));
                    None
                }
            })
            .collect()
    }

    fn put(&self, key: ObjectId, token: &Arc<RemoteToken>) {
        self.change(|of_keys| {
            of_keys.insert(key, Arc::clone(token));
            true
        });
    }

    fn remove(&self, key: &ObjectId, token: &Weak<RemoteToken>) {
        let is_it = |found: &Arc<RemoteToken>| std::ptr::eq(Arc::as_ptr(found), token.as_ptr());
        self.change(|of_keys| {
            let is_there = of_keys.get(key).is_some_and(is_it);
            is_there && of_keys.remove(key).is_some()
        });
    }

    /// Ends all of them.
    pub fn end(&self) {
        drop(self.0.swap(Arc::default()));
    }

    /// Changes a copy, which takes effect if `change` returns true. Runs `change` again if another thread was first.
    fn change(&self, change: impl Fn(&mut TokensOfKeys) -> bool) {
        self.0.rcu(|now| {
            let mut of_keys = TokensOfKeys::clone(now);
            if change(&mut of_keys) {
                Arc::new(of_keys)
            } else {
                Arc::clone(now)
            }
        });
    }
}

/// The request for a direct connection. If that fails, the pool gets it: uses may be repeated.
fn with_fallback(request: Request, pool: &Arc<LinkState>) -> Request {
    let Request {
        operation,
        deadline,
        behalf,
        done,
    } = request;
    let (again, pool) = (operation.clone(), Arc::clone(pool));
    let done = Done::new(move |result: Result<Outcome>| {
        let is_for_pool = |error: &Error| {
            error.scope() == Scope::Token
                || error.kind() == Kind::Deadline && Instant::now() < deadline
        };
        if !result.as_ref().is_err_and(is_for_pool) {
            return done.complete(result);
        }
        pool.submit(Batch::from_iter([Request {
            operation: again,
            deadline,
            behalf,
            done,
        }]));
    });
    Request {
        operation,
        deadline: deadline.min(Instant::now() + PATIENCE),
        behalf: None,
        done,
    }
}
