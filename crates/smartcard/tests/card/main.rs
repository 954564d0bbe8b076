//! A card that says what its script says: which bytes each command is, and what a host makes of every
//! kind of answer.

mod commands;
mod descriptions;
mod files;
mod keys;
mod lengths;
mod pins;
mod robust;
mod script;
