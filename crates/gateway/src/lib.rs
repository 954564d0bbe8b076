//! The gateway: TLS with private keys in the pool, in front of services that speak HTTP or plain TCP.
