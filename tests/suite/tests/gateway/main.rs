//! The gateway over real tokens, as clients of TLS see it.

mod abilities;
mod acme;
mod again;
mod audit;
mod authority;
mod backends;
mod balancer;
mod challenges;
mod checks;
mod early;
mod early_data;
mod exhaustion;
mod files;
mod h2;
mod handshakes;
mod haproxy_restarts;
mod hello;
mod here;
mod hosts;
mod http2_backends;
mod kept;
mod kinds;
mod late;
mod lost;
mod many_backends;
mod nginx_stream;
mod plain;
mod proxy_headers;
mod revoked;
mod sites;
mod stalled;
mod tickets;
mod tls_backends;
mod unkind;
mod websockets;

use hsmux_suite::gateway as rig;
