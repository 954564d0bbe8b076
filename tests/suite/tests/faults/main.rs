//! Bad input and faults: what breaks, and what goes on in spite of it.

mod daemon;
mod members;
mod pins;
mod rollout;
mod rotation;
mod state;
mod wire;
