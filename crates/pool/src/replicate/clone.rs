//! Existing keys to more tokens.
/// x
pub struct Cloned;
/// x
pub struct Fate;
/// x
pub struct Selection;
