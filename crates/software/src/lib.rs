//! Public keys, digests, and the names of objects: all that needs no token.
//!
//! Everything here works on public values in memory. Verification on a token would cost the time of a signature
//! there.

pub mod csr;
mod curve;
mod der;
mod ec;
mod edwards;
mod hash;
mod identify;
mod key;
pub mod pem;
mod prehash;
pub mod reference;
pub mod revocation;
mod rsa;
mod spec;
mod unchecked_keys;

pub use curve::Agreement;
pub use hash::{Hasher, digest};
pub use identify::{identify, lacks_public_half, unidentified};
pub use key::{PublicKey, PublicValues};
pub use prehash::{prehash, prehashed_input};
pub use spec::{CURVES, KeyCurve, KeySpec, refuses_template, with_default_uses};
pub use unchecked_keys::{unchecked_kind, unchecked_pair};
