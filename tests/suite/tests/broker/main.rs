//! The broker over real tokens, as its clients see it.

mod audit;
mod external;
mod go;
mod hvac;
mod metrics;
mod openapi;
mod requests;
mod restarts;
mod rig;
