//! Changes that reach enough members, or none.
