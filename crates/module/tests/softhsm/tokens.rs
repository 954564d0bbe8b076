//! Opening tokens.
