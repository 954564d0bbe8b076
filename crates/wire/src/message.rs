//! What travels: calls and answers, one at a time on each connection.
//!
//! A frame is a 32-bit little-endian length and one CBOR array (RFC 8949). Fields are numbered and
//! an unknown one is skipped, so a newer peer may say more than an older one reads; what an older
//! one cannot read at all is governed by the version agreed in [`Hello`] and [`Welcome`].

use hsmux_token::{
    Behalf, Blob, Borrow, Error, Estimate, Object, ObjectChanges, ObjectId, Operation,
    OperationPace, Outcome, Secret, Snapshot, TokenInfo,
};
use minicbor::{Decode, Encode};

/// The newest version that this code speaks.
pub const VERSION: u16 = 5;

/// The first version in which [`Operation::Begin`] is known.
pub const KNOWS_BEGIN: u16 = 3;

/// The first version in which [`Call::Withdraw`] and [`Call::Readings`] are known.
pub const KNOWS_WITHDRAW: u16 = 4;

/// The first version in which several uses may share a frame on a direct connection.
pub const KNOWS_SHARED_FRAMES: u16 = 5;

/// The oldest version that this code speaks.
pub const OLDEST: u16 = 1;

/// Bytes that an operation takes while it waits and runs: its request, what follows it, and its result or error.
const OPERATION: usize = 1 << 10;

/// Bytes of [`Answer::Readings`]: less than 2 KiB for each of 512 seats.
const READINGS: usize = 1 << 20;

/// The first frame of a client.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(array)]
pub struct Hello {
    /// The oldest version that the client speaks.
    #[n(0)]
    pub oldest: u16,
    /// The newest version that the client speaks.
    #[n(1)]
    pub newest: u16,
    /// Random, one for each C_Initialize: the connections of one application share login and session objects.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub client: [u8; 16],
    /// The program's name, for logs; not to be trusted.
    #[n(3)]
    pub program: String,
}

/// The first frame of a server.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(array)]
pub struct Welcome {
    /// The version that is spoken from here on.
    #[n(0)]
    pub version: u16,
    /// Random for each start of the server: another value means that session objects and logins are gone.
    #[n(1)]
    pub boot: u64,
    /// Whether C_Login needs the pool's PIN (`login = "pin"`); without it the peer's user id is enough.
    #[n(2)]
    pub pin_login: bool,
    /// Whether the listener refuses to change tokens.
    #[n(3)]
    pub read_only: bool,
    /// Whether [`Call::HandOver`] may be asked for; an older server says nothing, which is no.
    #[n(4)]
    pub hands_over: Option<bool>,
}

/// What a client asks.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(context_bound = "Borrow")]
pub enum Call {
    /// Run these operations; answered by [`Answer::Results`] in the same order, when all are done.
    #[n(0)]
    Execute(#[n(0)] Vec<Item>),
    /// What the token says of itself; answered by [`Answer::Info`].
    #[n(1)]
    Info,
    /// Read the token's objects afresh; answered by [`Answer::Objects`]. Of workers and nodes.
    #[n(2)]
    Objects,
    /// The part of the catalogue that this client may see, unless it is still `known`; answered by
    /// [`Answer::Catalogue`].
    #[n(3)]
    Catalogue {
        /// The epoch that the client has, 0 for none.
        #[n(0)]
        known: u64,
    },
    /// C_Login as CKU_USER with the pool's PIN.
    #[n(4)]
    Login(#[n(0)] Secret),
    /// C_Logout.
    #[n(5)]
    Logout,
    /// An administrative request, in JSON; only on the administration's listener.
    #[n(6)]
    Admin(#[n(0)] Blob),
    /// Of workers: what to load; opaque to the wire.
    #[n(7)]
    Start(#[n(0)] Secret),
    /// Changes of the token's objects since the last [`Call::Look`] or [`Call::Objects`]; answered by [`Answer::Seen`].
    /// Only for workers.
    #[n(8)]
    Look,
    /// How long work takes; answered by [`Answer::Pace`]. Of workers.
    #[n(9)]
    Pace,
    /// Hand this connection over to the worker of a token, for uses of this key and for nothing else: from
    /// [`Answer::Done`] on each [`Call::Execute`] of one such use is answered by the worker itself. It lasts
    /// until something changes, and then ends without another word. On a refusal all is as before.
    #[n(10)]
    HandOver(#[n(0)] ObjectId),
    /// The expected wait of a use of each of these keys, at most [`ESTIMATED`]; answered by [`Answer::Estimates`].
    /// Of services.
    #[n(11)]
    Estimates(#[n(0)] Vec<ObjectId>),
    /// Cancel these requests of the service, if they still wait: [`Behalf::request`], at most [`WITHDRAWN`]. Answered by
    /// [`Answer::Done`]. Of services.
    #[n(12)]
    Withdraw(#[n(0)] Vec<u64>),
    /// What the pool and the audit trail do now; answered by [`Answer::Readings`]. Of services.
    #[n(13)]
    Readings,
}

/// One operation of a batch.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(array, context_bound = "Borrow")]
pub struct Item {
    /// What to do.
    #[n(0)]
    pub operation: Operation,
    /// How long the answer is worth waiting for, in microseconds; clocks of two hosts differ.
    #[n(1)]
    pub remaining_us: u64,
    /// On whose behalf a service asks. Number 2 was a text.
    #[n(3)]
    pub behalf: Option<Behalf>,
}

/// Keys of one [`Call::Estimates`] at most.
pub const ESTIMATED: usize = 256;

/// Requests of one [`Call::Withdraw`] at most.
pub const WITHDRAWN: usize = 256;

/// What a server answers.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(array, context_bound = "Borrow")]
pub struct Reply {
    /// The epoch of the catalogue as this client may see it: another value than the last one means
    /// that the catalogue is to be fetched again before the next search.
    #[n(0)]
    pub epoch: u64,
    /// The answer itself.
    #[n(1)]
    pub answer: Answer,
    /// The CPU that a worker was on, from one that a program asks itself ([`Call::HandOver`]): a thread there
    /// is woken without an interrupt from one CPU to another. A hint, which older versions do not know.
    #[n(2)]
    pub cpu: Option<u32>,
}

/// The answer to a [`Call`].
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(context_bound = "Borrow")]
pub enum Answer {
    /// Done; there is nothing to say.
    #[n(0)]
    Done,
    /// The call as a whole failed.
    #[n(1)]
    Failed(#[n(0)] Error),
    /// One for each item.
    #[n(2)]
    Results(#[n(0)] Vec<Result<Outcome, Error>>),
    /// See [`Call::Info`].
    #[n(3)]
    Info(#[n(0)] TokenInfo),
    /// See [`Call::Objects`].
    #[n(4)]
    Objects(#[n(0)] Snapshot),
    /// `None`: what the client has is still true.
    #[n(5)]
    Catalogue(#[n(0)] Option<View>),
    /// Administration's answer, in JSON.
    #[n(6)]
    Admin(#[n(0)] Blob),
    /// A worker has started.
    #[n(7)]
    Started(#[n(0)] TokenInfo),
    /// A worker that starts has come to this call, which may crash or hang; the answer is to follow.
    #[n(8)]
    Doing(#[n(0)] String),
    /// See [`Call::Look`].
    #[n(9)]
    Seen(#[n(0)] ObjectChanges),
    /// See [`Call::Pace`].
    #[n(10)]
    Pace(#[n(0)] Vec<OperationPace>),
    /// A worker has connected to a token elsewhere, which speaks this version on the lanes.
    #[n(11)]
    Linked(#[n(0)] TokenInfo, #[n(1)] u16),
    /// One for each key of [`Call::Estimates`].
    #[n(12)]
    Estimates(#[n(0)] Vec<Estimate>),
    /// See [`Call::Readings`]; in JSON.
    #[n(13)]
    Readings(#[n(0)] Blob),
}

/// The catalogue as one client may see it.
#[derive(Clone, Default, Debug, Encode, Decode)]
#[cbor(array, context_bound = "Borrow")]
pub struct View {
    /// See [`Reply::epoch`].
    #[n(0)]
    pub epoch: u64,
    /// The one token: label, serial and flags of the pool, and the mechanisms that its members have.
    #[n(1)]
    pub info: TokenInfo,
    /// The objects.
    #[n(2)]
    pub objects: Vec<Object>,
    /// Whether the client is logged in; private objects are listed only then.
    #[n(3)]
    pub logged_in: bool,
}

impl Call {
    /// Whether it may be sent again after its answer was lost.
    pub fn repeatable(&self) -> bool {
        match self {
            Self::Execute(items) => items.iter().all(|item| item.operation.repeatable()),
            Self::Info
            | Self::Objects
            | Self::Catalogue { .. }
            | Self::Login(_)
            | Self::Logout
            | Self::HandOver(_)
            | Self::Estimates(_)
            | Self::Withdraw(_)
            | Self::Readings
            | Self::Pace => true,
            // What was seen is not seen again.
            Self::Admin(_) | Self::Start(_) | Self::Look => false,
        }
    }

    /// How many bytes the answer, and the work for it, may take; those of the catalogue and of objects, on which they
    /// hang as well, are not counted.
    pub fn answer_bytes(&self) -> usize {
        match self {
            Self::Execute(items) => items
                .iter()
                .map(|item| OPERATION + item.operation.answer_bytes())
                .fold(0, usize::saturating_add),
            Self::Estimates(keys) => OPERATION + keys.len() * size_of::<Estimate>(),
            Self::Readings => READINGS,
            _ => OPERATION,
        }
    }

    /// For errors and logs: the PKCS#11 call of the first operation, or the call's own name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Execute(items) => items
                .first()
                .map_or("nothing", |item| item.operation.call()),
            Self::Info => "C_GetTokenInfo",
            Self::Objects => "reading the objects",
            Self::Catalogue { .. } => "the catalogue",
            Self::Login(_) => "C_Login",
            Self::Logout => "C_Logout",
            Self::Admin(_) => "administration",
            Self::Start(_) => "the start of a worker",
            Self::Look => "a look at the objects",
            Self::Pace => "the pace of work",
            Self::HandOver(_) => "handing over a connection",
            Self::Estimates(_) => "the waiting time",
            Self::Withdraw(_) => "the withdrawal of requests",
            Self::Readings => "readings",
        }
    }
}

impl Reply {
    /// A call that failed as a whole, with no word about the catalogue.
    pub fn failed(error: Error) -> Self {
        Self::new(0, Answer::Failed(error))
    }

    /// An answer, with the epoch of the catalogue or 0 for no word about it.
    pub fn new(epoch: u64, answer: Answer) -> Self {
        Self {
            epoch,
            answer,
            cpu: None,
        }
    }
}
