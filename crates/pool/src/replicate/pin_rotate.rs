//! A new PIN.
