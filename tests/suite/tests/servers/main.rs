//! Other people's servers, whose TLS keys are in the pool: nginx and Apache through OpenSSL's engine, NSS's by the
//! module itself; and what haproxy cannot do.

mod apache;
mod haproxy;
mod nginx;
mod nss;
mod web;
