//! Changes over real SoftHSM tokens.

mod bench;
mod changes;
mod clones;
mod crash;

use bench::{Bench, in_own_process};
