//! Frames between processes: a module and its daemon, a daemon and its workers.
//!
//! - [`Client`] calls, from an application that may not be given threads;
//! - [`Reactor`] serves ([`Service`], [`Conversation`]), on one thread for all connections;
//! - [`RemoteToken`] is a token at the other end of sockets, and [`serve_lane`] that other end;
//! - [`ServiceLink`] is between a daemon and a service that is a process of its own.

mod accept;
mod budget;
mod caller;
mod client;
mod connection;
mod cork;
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
mod vigil;
mod wipe;

pub use accept::{Entrance, Listening};
pub use client::{Client, VerifyServer};
pub use connection::{Broken, Connection, decode};
pub use cork::together;
#[doc(hidden)]
pub use direct::fuzzing;
pub use direct::{Direct, Handed, Supervisor};
pub use hello::{Greeting, SPOKEN, Versions, agree};
pub use lane::serve_lane;
pub use message::*;
pub use reactor::{Reactor, TurnRoom};
pub use remote::{Keeper, Link, RemoteToken};
pub use server::{Answerer, Conversation, HandedOver, Service};
pub use service_link::{Client as ServiceClient, FromService, ServiceLink, ToService};
pub use socket::{Endpoint, Peer};
