//! The card from the host's side: command APDUs as in OpenSC and sc-hsm-embedded.

mod cloning;
mod faults;
mod files;
mod garbage;
mod host;
mod keys;
mod persistence;
mod pins;
mod symmetric;
