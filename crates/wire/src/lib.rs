//! Frames between processes: a module and its daemon, a daemon and its workers.
//!
//! - [`Client`] makes calls for an application, without a thread of its own.
//! - [`Reactor`] serves all connections ([`Service`], [`Conversation`]) on one thread.
//! - [`RemoteToken`] is a token at the other end of sockets; [`serve_lane`] serves that end.
//! - [`ServiceLink`] connects a daemon with a service that is a process of its own.

mod accept;
mod account;
mod backoff;
mod budget;
mod busy_poll;
mod caller;
mod client;
mod connection;
mod count;
pub mod descriptors;
mod direct;
mod fitted;
pub mod frame;
mod hello;
mod lane;
mod message;
mod outlet;
mod reactor;
mod remote;
mod server;
mod service_link;
mod slots;
mod socket;
mod wipe;

pub use accept::{Admitted, Entrance, Listening};
pub use account::read_accounts;
pub use backoff::Backoff;
pub use client::{Client, VerifyServer};
pub use connection::{Broken, Connection, decode};
pub use direct::{Direct, ProgramConnection, Supervisor};
pub use hello::{Greeting, SPOKEN, Versions, agree};
pub use lane::serve_lane;
pub use message::*;
pub use reactor::{Reactor, TurnRoom};
pub use remote::{Link, PeerProcess, RecentTokens, RemoteToken};
pub use server::{Answerer, Conversation, HandedOver, Service};
pub use service_link::{
    FromService, ListeningSocket, RecordKind, ServiceClient, ServiceLink, ToService,
};
pub use socket::{Endpoint, Peer};

/// Entries for fuzz targets.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::direct::fuzzing::{FuzzedConnection, Reaction};
    pub use crate::service_link::fuzzing::{FuzzedLink, PassedDescriptor};
}
