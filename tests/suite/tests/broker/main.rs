//! The broker over real tokens, as its clients see it.

mod access;
mod audit;
mod batch;
mod bench;
mod certificates;
mod churn;
mod connection;
mod cost;
mod external;
mod faults_http;
mod go;
mod held;
mod hvac;
mod jwt;
mod kill;
mod limits;
mod managed;
mod metrics;
mod openapi;
mod oracle;
mod pki;
mod requests;
mod restarts;
mod rig;
mod store;
