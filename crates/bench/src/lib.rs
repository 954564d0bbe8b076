//! One measuring engine, and the commands of `hsmux bench` on it.
//!
//! - [`engine`]: closed and open loop, warm-up, latencies, processes, interruption;
//! - [`sign`]: the signing evaluation of one key;
//! - [`scale`]: throughput by the number of members, with a report of charts;
//! - [`burn_in`]: hours of signatures, each verified; interrupted and resumed;
//! - [`http`]: load on a service with the Transit API over HTTP;
//! - [`tls`]: load on a web server over TLS, with users like those of siege;
//! - [`matrix`]: a table of such measurements, beside published figures;
//! - [`churn`]: the cost of key changes, beside published figures;
//! - [`cipher`]: half encryption, half decryption with one key of a token;
//! - [`compare`]: variants of the same work side by side, judged by their ratios.
//!
//! Every command has options and a `run` that returns a report: JSON by `docs/bench-schema.json`, and a table of
//! 80 columns by `Display`.

pub mod burn_in;
pub mod cards;
pub mod churn;
pub mod cipher;
pub mod compare;
pub mod engine;
mod format;
pub mod http;
mod machine;
pub mod matrix;
mod measurement;
mod memory;
mod processes;
mod record;
mod reference;
mod report;
pub mod scale;
mod series;
pub mod sign;
mod slope;
mod target;
mod timeline;
pub mod tls;

pub use engine::{LoadModel, Phase, Plan, Progress, RunControl, Until};

pub use machine::Machine;
pub use measurement::{Fault, Latency, Measurement};
pub use processes::Process;
pub use reference::{ChurnRow, ScalingRow, SigningRow, TlsRow, scaling, siege_table};
pub use report::Head;

pub use target::{BenchKey, KeyDescription, mechanism};
pub use timeline::Point;

/// The schema in the field `schema` of every report.
pub const SCHEMA: &str = "hsmux-bench/1";
