//! The serving end: what a server implements, and how it answers.

use std::sync::Arc;

use hsmux_token::{Error, Result};

use crate::caller::Caller;
use crate::{Call, Hello, Peer, Reply};

/// What listens: decides who may talk, and makes a conversation for each connection.
pub trait Service: Send + Sync {
    /// Random for each start of the server; see [`Welcome::boot`](crate::Welcome::boot).
    fn boot(&self) -> u64;

    /// See [`Welcome::pin_login`](crate::Welcome::pin_login).
    fn pin_login(&self) -> bool {
        false
    }

    /// See [`Welcome::read_only`](crate::Welcome::read_only).
    fn read_only(&self) -> bool {
        false
    }

    /// A peer has connected and said hello; an error is told to it, and the connection closed. The
    /// connections of one [`Hello::client`] may share a conversation.
    fn open(&self, peer: Peer, hello: &Hello) -> Result<Arc<dyn Conversation>>;
}

/// What a connected client talks to. Runs on the reactor's thread: it must not block.
pub trait Conversation: Send + Sync {
    /// A call; at most one is open on each connection.
    fn call(&self, call: Call, answer: Answerer);

    /// A connection of this conversation has ended; called once for each.
    fn closed(&self) {}
}

/// The way back for one answer, from any thread. Dropped without one, it says that it was lost.
pub struct Answerer(Option<Arc<Caller>>);

impl Answerer {
    pub(crate) fn new(caller: Arc<Caller>) -> Self {
        Self(Some(caller))
    }

    /// Sends the answer; a client that has gone meanwhile is not told.
    pub fn send(mut self, reply: &Reply) {
        if let Some(caller) = self.0.take() {
            caller.answer(reply);
        }
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        if let Some(caller) = self.0.take() {
            caller.answer(&Reply::failed(Error::lost(
                "the call was dropped on its way",
            )));
        }
    }
}
