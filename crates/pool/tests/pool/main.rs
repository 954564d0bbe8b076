//! The pool over fake tokens with real keys.

mod affinity;
mod changes;
mod claims;
mod client_sessions;
mod counted;
mod direct_connections;
mod faults;
mod health;
mod hosts;
mod large_keys;
mod late_look;
mod load;
mod object_sync;
mod panics;
mod rejoin;
mod request_timing;
mod roster;
mod secrets;
mod serving;
mod slots;
mod slow;
mod vault;
mod watched_member;
mod watching;
