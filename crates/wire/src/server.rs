//! The serving end: what a server implements, and how it answers.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};

use hsmux_token::{Error, Result};

use crate::caller::Caller;
use crate::{Answer, Call, Hello, Peer, Reply};

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

    /// See [`Welcome::hands_over`](crate::Welcome::hands_over).
    fn hands_over(&self) -> bool {
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

    /// Whether C_Login has succeeded; before, a connection may hold 64 KiB.
    fn logged_in(&self) -> bool {
        true
    }

    /// How many operations one call may have: more are refused before they are decoded.
    fn most_operations(&self) -> u64 {
        u64::MAX
    }

    /// How many bytes the answer to this call, and the work for it, may take.
    fn answer_bytes(&self, call: &Call) -> usize {
        call.answer_bytes()
    }

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

impl Answerer {
    /// Has somebody else answer what comes on this connection from here on, to whom `pass` gives it
    /// ([`HandedOver::pass_on`]). On the reactor's thread only. The answer to the open call says whether it has.
    pub fn hand_over(
        mut self,
        pass: impl FnOnce(HandedOver) -> Result<()>,
        reply: impl FnOnce(Answer) -> Reply,
    ) {
        let Some(caller) = self.0.take() else { return };
        let answer = match caller.hand_over(pass) {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Failed(error),
        };
        caller.answer(&reply(answer));
    }
}

/// A connection that is handed over, to be ended when it may go on no longer.
#[derive(Clone)]
pub struct HandedOver(Weak<Caller>);

impl HandedOver {
    pub(crate) fn new(caller: &Arc<Caller>) -> Self {
        Self(Arc::downgrade(caller))
    }

    /// Closes the connection, whoever serves it; its client asks again on another one. From any thread.
    pub fn end(&self) {
        if let Some(caller) = self.0.upgrade() {
            caller.end();
        }
    }

    /// Gives somebody the socket, and the frame version that is spoken on it. From any thread.
    pub fn pass_on(&self, pass: impl FnOnce(&UnixStream, u16) -> Result<()>) -> Result<()> {
        match self.0.upgrade() {
            Some(caller) => pass(caller.stream(), caller.version()),
            None => Err(Error::lost("the client's connection has ended")),
        }
    }

    /// Whether the client is still there.
    pub fn is_open(&self) -> bool {
        self.0.upgrade().is_some_and(|caller| !caller.has_ended())
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
