//! Changes over real SoftHSM tokens.

mod bench;
mod changes;
mod clones;
mod crash;
mod envelopes;
mod expiry;
mod failing_members;
mod full;
mod oaep_hashes;
mod origins;
mod pins;
mod pool_writer;
mod state;
mod temporary_keys;

use bench::{Bench, in_own_process};
