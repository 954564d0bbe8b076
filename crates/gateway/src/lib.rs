//! The gateway: TLS with private keys of the pool, in front of servers that speak HTTP or any other protocol.
//!
//! A handshake that waits for a token's signature is a future ([`signer`]), which holds no thread. TLS is BoringSSL's,
//! because it alone supports asynchronous private keys.
//!
//! | file | one idea |
//! |---|---|
//! | `service` | start and end |
//! | `app_state` | state that all connections share |
//! | `acceptor` | accepting connections |
//! | `reservation` | slots that a connection takes before it is served |
//! | `activity` | whether a connection is idle |
//! | `file_budget` | budget of open files |
//! | `access` | what the access log has of a request |
//! | `connection` | one connection, from its first byte |
//! | `sites`, `tls` | the site and the certificate that a client gets |
//! | `certificate`, `algorithm` | certificates with their keys, and what these can sign |
//! | `memory` | memory budget of all connections |
//! | `client_chain`, `client_roots` | certificates of clients, and the roots that they lead to |
//! | `revocation` | revoked certificates of clients |
//! | `lifetime` | expiry of certificates |
//! | `signer` | private keys of the pool, for BoringSSL |
//! | `signatures`, `fair_queue` | fair order of signatures |
//! | `source` | which clients count as one |
//! | `ticket_key_rotation`, `ticket_keys` | sessions that other hosts can resume |
//! | `http`, `tunnel` | the protocols inside TLS |
//! | `relay` | relay between two connections: WebSocket, and protocols other than HTTP |
//! | `idle_timer` | idle timer of a connection |
//! | `phase` | phases of the shutdown |
//! | `backend` | connections to the servers behind sites |
//! | `plain` | HTTP without TLS: ACME's challenges, and redirects to https |
//! | `proxy_header` | the PROXY protocol |
//! | `socket`, `tls_stream` | a client's socket, and TLS on it |
//! | `site_watcher` | reloads sites when they change |
//! | `balancer` | configurations of haproxy and nginx |
//! | `metrics`, `site_metrics`, `monitor` | counters, metrics of sites, and their endpoint |

mod acceptor;
mod access;
mod activity;
mod algorithm;
mod app_state;
mod backend;
pub mod balancer;
mod certificate;
mod client_chain;
mod client_roots;
mod connection;
mod fair_queue;
mod file_budget;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod idle_timer;
mod lifetime;
mod memory;
mod metrics;
mod monitor;
mod phase;
mod plain;
mod proxy_header;
mod relay;
mod reservation;
mod revocation;
mod service;
mod signatures;
mod signer;
mod site_metrics;
mod site_watcher;
mod sites;
mod socket;
mod source;
mod ticket_key_rotation;
mod ticket_keys;
mod tls;
mod tls_stream;
mod tunnel;

pub use service::Gateway;
