//! Virtual cards in readers, and the real programs of the field on them.
//!
//! Some of these programs exit with 0 when the card refused, and one with 1 when it did not: what
//! counts is what the card holds and does afterwards.

mod audit;
mod beside;
mod doctor;
mod far;
mod hot_plug;
mod new_card;
mod new_keys;
mod openssl;
mod other_makers;
mod p11_kit;
mod pkcs11_tool;
mod pkcs15;
mod pool;
mod pool_page;
mod provision;
mod readers;
mod run;
mod sc_hsm_tool;
mod twins;
