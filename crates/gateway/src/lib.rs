//! The gateway: TLS with private keys in the pool, in front of services that speak HTTP or anything else.
//!
//! A handshake that waits for a token's signature is a future ([`signer`]): it holds no thread, and what is
//! established goes on meanwhile. TLS is BoringSSL's, for it alone lets a private key take its time.
//!
//! | file | one idea |
//! |---|---|
//! | `service` | start and end |
//! | `house` | what all connections share, and how many there may be |
//! | `reservation` | what a connection takes before it is served, and who gives way where that is missing |
//! | `activity` | whether a connection is idle |
//! | `files` | how many files they and what is behind them hold |
//! | `connection` | one connection, from its first byte |
//! | `sites`, `tls` | which site and which certificate a client gets |
//! | `certificate`, `algorithm` | what belongs together, and what a token can sign |
//! | `memory` | how much memory they hold together |
//! | `revocation` | which certificates of clients are believed no more |
//! | `lifetime` | until when certificates are good |
//! | `signer` | signatures of the pool |
//! | `signatures`, `fair_queue` | in which order they are asked for |
//! | `source` | which clients count as one |
//! | `tickets` | sessions that other hosts resume |
//! | `http`, `tunnel` | what is inside TLS |
//! | `joined` | what becomes a WebSocket, or is no HTTP: both ends, until nothing passes |
//! | `pace` | whether anything moves on a connection |
//! | `phase` | how far the gateway has come to its end |
//! | `backend` | connections to the servers behind sites |
//! | `plain` | what is outside: ACME's challenges, and the way to https |
//! | `proxy_header` | who the client is behind a proxy |
//! | `socket`, `tls_stream` | a socket of TLS that is watched from outside, and what is inside TLS |
//! | `watch` | what changes while it runs |
//! | `balancer` | what haproxy in front of several is told |
//! | `metrics`, `standing`, `monitor` | what it counts, how its sites stand, and who may ask |

mod activity;
mod algorithm;
mod backend;
pub mod balancer;
mod certificate;
mod connection;
mod fair_queue;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod house;
mod http;
mod joined;
mod lifetime;
mod memory;
mod metrics;
mod monitor;
mod pace;
mod phase;
mod plain;
mod proxy_header;
mod reservation;
mod revocation;
mod service;
mod signatures;
mod signer;
mod sites;
mod socket;
mod source;
mod standing;
mod ticket_keys;
mod tickets;
mod tls;
mod tls_stream;
mod tunnel;
mod watch;

pub use service::Gateway;
