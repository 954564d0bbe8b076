//! The gateway over real tokens, as clients of TLS see it.

mod backends;
mod balancer;
mod h2;
mod handshakes;
mod kinds;
mod lost;
mod sites;
mod tickets;
mod unkind;

use hsmux_suite::gateway as rig;
