//! Changes over real SoftHSM tokens.

mod bench;
mod changes;
mod crash;

use bench::{Bench, in_own_process};
