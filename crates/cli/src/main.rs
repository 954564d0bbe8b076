//! The command `hsmux`.

fn main() {}
