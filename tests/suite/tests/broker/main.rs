//! The broker over real tokens, as its clients see it.

mod audit;
mod batch;
mod bench;
mod churn;
mod external;
mod go;
mod held;
mod hvac;
mod kill;
mod managed;
mod metrics;
mod openapi;
mod oracle;
mod requests;
mod restarts;
mod rig;
mod store;
