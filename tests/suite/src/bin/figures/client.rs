//! The client that every variant is measured by.

use std::path::PathBuf;

use hsmux_bench::{Measurement, sign};
use hsmux_suite::{Rig, Run};
use hsmux_token::{Error, Kind, Result};

/// A module, a token and its PIN, driven by so many threads.
#[derive(Clone)]
pub struct Client<'a> {
    rig: &'a Rig,
    module: PathBuf,
    token: String,
    pin: String,
    environment: Vec<(&'static str, String)>,
}

impl<'a> Client<'a> {
    /// The rig's module and token.
    pub fn of(rig: &'a Rig) -> Self {
        Self {
            rig,
            module: rig.module(),
            token: rig.label().to_owned(),
            pin: rig.pin(),
            environment: Vec::new(),
        }
    }

    /// Another module on the rig's token `hsm1`, past the pool.
    pub fn past(rig: &'a Rig, module: impl Into<PathBuf>) -> Self {
        Self {
            module: module.into(),
            token: "hsm1".to_owned(),
            pin: hsmux_suite::SoftHsm::pin("hsm1"),
            ..Self::of(rig)
        }
    }

    /// With a variable of the environment.
    pub fn with(mut self, name: &'static str, value: String) -> Self {
        self.environment.push((name, value));
        self
    }

    /// Signs with the P-256 key, so often by so many threads in all.
    pub fn sign(&self, threads: usize, count: u64) -> Result<Measurement> {
        let mut run: Run = self
            .rig
            .run(hsmux_suite::built(hsmux_suite::Program::Drive))
            .arg(&self.module)
            .arg(format!("pkcs11:token={};object=ec", self.token))
            .arg(self.rig.path("drive"))
            .arg(threads.to_string())
            .arg(count.to_string())
            .input(self.pin.as_bytes())
            .limit(300);
        for (name, value) in &self.environment {
            run = run.env(name, value);
        }
        let finished = run.ok();
        let report: sign::Report = serde_json::from_str(&finished.out).map_err(|error| {
            Error::request(Kind::Protocol, format!("the client's report: {error}"))
        })?;
        Ok(report.measurement)
    }
}
