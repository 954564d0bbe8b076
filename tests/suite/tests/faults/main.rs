//! Bad input and faults: what breaks, and what goes on in spite of it.

mod audit;
mod changes;
mod daemon;
mod direct;
mod direct_faults;
mod exchanged;
mod fairness;
mod gone;
mod limits;
mod long;
mod members;
mod memory;
mod pins;
mod queue;
mod raw;
mod recorded;
mod rollout;
mod rotation;
mod sandbox;
mod slow_frames;
mod state;
mod swarm;
mod unchecked;
mod user;
mod vendor;
mod wire;
