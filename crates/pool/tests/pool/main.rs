//! The pool over fake tokens with real keys.

mod changes;
mod claims;
mod counted;
mod course;
mod faults;
mod guests;
mod health;
mod homes;
mod hosts;
mod large_keys;
mod late_look;
mod lines;
mod load;
mod minded;
mod minding;
mod panics;
mod rejoin;
mod roster;
mod secrets;
mod serving;
mod slots;
mod slow;
mod stock;
mod vault;
