//! Other people's servers, whose TLS keys are in the pool: nginx and Apache through OpenSSL's engine or our provider,
//! haproxy by the provider, NSS's by the module itself.

mod apache;
mod haproxy;
mod nginx;
mod nss;
mod openssl;
mod openssl_decrypt;
mod way;
mod web;
