//! The one trait: a pool is a token.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex};
use minicbor::{Decode, Encode};
use smallvec::SmallVec;

use crate::{
    Behalf, Error, Kind, ObjectChanges, ObjectId, Operation, OperationPace, Outcome, Result,
    Snapshot,
};

/// A token: a vendor's module, a worker process, a host, or a pool of any of them.
pub trait Token: Send + Sync {
    /// What the token says of itself; cheap, and the same for as long as the token lives.
    fn info(&self) -> Arc<TokenInfo>;

    /// Reads all token objects. Blocks, and may be slow: never called for a request.
    fn objects(&self) -> Result<Arc<Snapshot>>;

    /// Changes of the objects since the last look, or since the objects were read. Reads only what is new; blocks. One thread
    /// at a time calls it.
    fn look(&self) -> Result<ObjectChanges> {
        let message = "this token can be read, and not looked at";
        Err(Error::request(Kind::Unsupported, message))
    }

    /// How long its work takes, by kind; nothing where that is not measured. Cheap. A worker measures from the
    /// first time on that it is asked.
    fn pace(&self) -> Vec<OperationPace> {
        Vec::new()
    }

    /// Starts every request of the batch; each one's `done` is called once, on any thread.
    ///
    /// Waiting holds no thread. `done` may run before `submit` returns.
    fn submit(&self, batch: Batch);

    /// Runs one operation and waits for it. A token that can runs it on the caller's thread.
    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        let waiter = Arc::new((Mutex::new(None), Condvar::new()));
        let signal = Arc::clone(&waiter);
        let done = Done::new(move |result| {
            *signal.0.lock() = Some(result);
            signal.1.notify_one();
        });
        self.submit(Batch::from_buf([Request {
            behalf: None,
            operation: operation.clone(),
            deadline,
            done,
        }]));
        let mut answer = waiter.0.lock();
        loop {
            if let Some(result) = answer.take() {
                return result;
            }
            // A token answers at its deadline by itself; the grace is for one that does not.
            if waiter.1.wait_until(&mut answer, deadline + GRACE) {
                return Err(Error::pool(
                    Kind::Deadline,
                    format!("{}: no answer by the deadline", operation.call()),
                ));
            }
        }
    }

    /// Runs several operations on this thread, each until its time, and tells each answer by its place
    /// in `operations` as soon as it is there. A token that is faster so takes some of them together.
    fn execute_all(
        &self,
        operations: &[(Operation, Instant)],
        tell: &mut dyn FnMut(usize, Result<Outcome>),
    ) {
        for (place, (operation, deadline)) in operations.iter().enumerate() {
            tell(place, self.execute(operation, *deadline));
        }
    }

    /// Nothing waits, and an operation like this one may come next: what can be done before, is done now. Until
    /// when it is kept, if anything was: then [`Self::discard_ready`] is to be called.
    fn make_ready(&self, _like: &Operation) -> Option<Instant> {
        None
    }

    /// Discards what [`Self::make_ready`] prepared and nobody used in time.
    fn discard_ready(&self) {}

    /// Calls `lost` once when the connection to the token ends by itself.
    ///
    /// A token that cannot be lost (in this process) keeps the default, which never calls.
    fn on_lost(&self, _lost: Box<dyn FnOnce(Error) + Send>) {}

    /// Has the token serve a program's connection itself. Does not wait. It lasts until somebody ends it.
    fn hand_over(&self, _connection: &DirectConnection<'_>) -> Result<()> {
        let message = "this token takes no connections over";
        Err(Error::request(Kind::Unsupported, message))
    }

    /// Whether it takes programs' connections over ([`Self::hand_over`]).
    fn takes_connections(&self) -> bool {
        false
    }

    /// Operations that it has served on connections that were handed over to it.
    fn served_directly(&self) -> u64 {
        0
    }

    /// The process that holds the token, where that is another one.
    fn process(&self) -> Option<u32> {
        None
    }

    /// Ends the connection: what is running fails with [`crate::Kind::Lost`]. For a token that hangs.
    fn abort(&self, _reason: &str) {}
}

const GRACE: Duration = Duration::from_secs(1);

/// A program's connection that is handed over to a token.
#[derive(Clone, Copy, Debug)]
pub struct DirectConnection<'a> {
    /// The connection itself.
    pub connection: &'a UnixStream,
    /// The version of the frames that are spoken on it.
    pub version: u16,
    /// Only uses of this key are served.
    pub key: ObjectId,
    /// One of them may take so long; then the token hangs.
    pub timeout: Duration,
    /// Which of the daemon's it is: the same one may be handed over again, to be heard by more threads.
    pub number: u64,
    /// Whether others hear it, too: whoever of them has nothing to do takes what comes.
    pub shared: bool,
    /// Whether it comes first there.
    pub home: bool,
}

/// Requests that start together. One is the common case and costs no allocation.
pub type Batch = SmallVec<[Request; 1]>;

/// One operation, until when, and who is told.
pub struct Request {
    /// What to do.
    pub operation: Operation,
    /// Past this nobody waits for the answer.
    pub deadline: Instant,
    /// On whose behalf a service asks.
    pub behalf: Option<Box<Behalf>>,
    /// Who is told.
    pub done: Done,
}

/// A completion: called exactly once, also when it is dropped on the way.
pub struct Done(Option<Box<dyn FnOnce(Result<Outcome>) + Send>>);

impl Done {
    /// `tell` runs on the thread that has the answer: it must not block.
    pub fn new(tell: impl FnOnce(Result<Outcome>) + Send + 'static) -> Self {
        Self(Some(Box::new(tell)))
    }

    /// Tells the answer.
    pub fn complete(mut self, result: Result<Outcome>) {
        if let Some(tell) = self.0.take() {
            tell(result);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell(Err(Error::lost("the request was dropped on its way")));
        }
    }
}

/// What a token says of itself (CK_TOKEN_INFO, CK_INFO, C_GetMechanismInfo).
#[derive(Clone, Default, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct TokenInfo {
    /// label, without the padding.
    #[n(0)]
    pub label: String,
    /// manufacturerID of the token.
    #[n(1)]
    pub manufacturer: String,
    /// model.
    #[n(2)]
    pub model: String,
    /// serialNumber: with `manufacturer` and `model` the token's name in the state folder.
    #[n(3)]
    pub serial: String,
    /// The CKF_* bits of CK_TOKEN_INFO that matter.
    #[n(4)]
    pub flags: TokenFlags,
    /// hardwareVersion, major and minor.
    #[n(5)]
    pub hardware: (u8, u8),
    /// firmwareVersion, major and minor.
    #[n(6)]
    pub firmware: (u8, u8),
    /// libraryDescription of the module.
    #[n(7)]
    pub library: String,
    /// libraryVersion of the module, major and minor.
    #[n(8)]
    pub library_version: (u8, u8),
    /// What the token can do, sorted by `kind`.
    #[n(9)]
    pub mechanisms: Vec<MechanismInfo>,
    /// How many operations it runs at once.
    #[n(10)]
    pub lanes: u32,
    /// ulMinPinLen and ulMaxPinLen.
    #[n(11)]
    pub pin_length: (u64, u64),
    /// slotDescription of a slot that tokens come to and go from (CKF_REMOVABLE_DEVICE): of a card, its
    /// reader's name.
    #[n(12)]
    pub slot: Option<String>,
}

impl TokenInfo {
    /// Tells this token from the other members': its serial number, or without one the name of its member.
    ///
    /// A vendor's serial number has at most 16 characters, so none can be taken for a member without one.
    #[must_use]
    pub fn identity(&self, member: &str) -> String {
        if self.serial.is_empty() {
            format!("without serial number: {member}")
        } else {
            self.serial.clone()
        }
    }
}

impl TokenInfo {
    /// What the token says of a mechanism.
    pub fn mechanism(&self, kind: u64) -> Option<&MechanismInfo> {
        let at = self
            .mechanisms
            .binary_search_by_key(&kind, |m| m.kind)
            .ok()?;
        Some(&self.mechanisms[at])
    }
}

/// CK_MECHANISM_INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct MechanismInfo {
    /// `CKM_*`.
    #[n(0)]
    pub kind: u64,
    /// ulMinKeySize.
    #[n(1)]
    pub min_key: u64,
    /// ulMaxKeySize.
    #[n(2)]
    pub max_key: u64,
    /// CKF_* as the token gave them.
    #[n(3)]
    pub flags: u64,
}

bitflags::bitflags! {
    /// The CKF_* bits of CK_TOKEN_INFO, with the standard's values.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TokenFlags: u64 {
        /// CKF_RNG.
        const RNG = 0x1;
        /// CKF_WRITE_PROTECTED.
        const WRITE_PROTECTED = 0x2;
        /// CKF_LOGIN_REQUIRED.
        const LOGIN_REQUIRED = 0x4;
        /// CKF_USER_PIN_INITIALIZED.
        const USER_PIN_INITIALIZED = 0x8;
        /// CKF_PROTECTED_AUTHENTICATION_PATH.
        const PROTECTED_AUTHENTICATION_PATH = 0x100;
        /// CKF_TOKEN_INITIALIZED.
        const TOKEN_INITIALIZED = 0x400;
        /// CKF_USER_PIN_COUNT_LOW.
        const USER_PIN_COUNT_LOW = 0x1_0000;
        /// CKF_USER_PIN_FINAL_TRY.
        const USER_PIN_FINAL_TRY = 0x2_0000;
        /// CKF_USER_PIN_LOCKED.
        const USER_PIN_LOCKED = 0x4_0000;
        /// CKF_USER_PIN_TO_BE_CHANGED.
        const USER_PIN_TO_BE_CHANGED = 0x8_0000;
        /// CKF_SO_PIN_COUNT_LOW.
        const SO_PIN_COUNT_LOW = 0x10_0000;
        /// CKF_SO_PIN_FINAL_TRY.
        const SO_PIN_FINAL_TRY = 0x20_0000;
        /// CKF_SO_PIN_LOCKED.
        const SO_PIN_LOCKED = 0x40_0000;
        /// CKF_ERROR_STATE.
        const ERROR_STATE = 0x100_0000;
        const _ = !0;
    }
}

impl<C> Encode<C> for TokenFlags {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.u64(self.bits())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for TokenFlags {
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        Ok(Self::from_bits_retain(d.u64()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_without_a_serial_number_are_told_from_each_other_and_from_all_that_have_one() {
        let token = |serial: &str| TokenInfo {
            serial: serial.into(),
            ..TokenInfo::default()
        };
        assert_eq!(token("0001").identity("one"), token("0001").identity("two"));
        assert_ne!(token("").identity("one"), token("").identity("two"));
        // C_GetTokenInfo has 16 characters for it.
        assert!(token("").identity("").len() > 16);
    }
}
