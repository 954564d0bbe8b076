//! Changes over real SoftHSM tokens.

mod bench;
mod changes;
mod clones;
mod crash;
mod envelopes;
mod expiry;
mod full;
mod origins;
mod passing;
mod pins;
mod pooled;
mod state;

use bench::{Bench, in_own_process};
