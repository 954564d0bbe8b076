//! The card as hosts see it: command APDUs as OpenSC and sc-hsm-embedded send them.

mod cloning;
mod faults;
mod files;
mod garbage;
mod host;
mod keys;
mod persistence;
mod pins;
mod symmetric;
