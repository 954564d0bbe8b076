//! Provisioning of virtual cards in memory, and everything that can go wrong with it.

mod backups;
mod clones;
mod newborn;
mod hub;
mod pulled;
mod rig;
mod set_up;
mod wrapped_keys;
