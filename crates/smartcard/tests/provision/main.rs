//! Provisioning of virtual cards in memory, and everything that can go wrong with it.

mod backups;
mod clones;
mod hostile;
mod hub;
mod liar;
mod new_key;
mod pulled;
mod rig;
mod set_up;
mod wrapped_keys;
