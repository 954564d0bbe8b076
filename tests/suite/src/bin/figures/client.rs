//! The client for all variants.

use std::path::PathBuf;
use std::time::Duration;

use hsmux_bench::{Measurement, sign};
use hsmux_suite::{Rig, SoftHsm};
use hsmux_token::{Error, Kind, Result};

/// A module, a token and its PIN.
#[derive(Clone)]
pub struct BenchClient<'a> {
    rig: &'a Rig,
    module: PathBuf,
    token: String,
    pin: String,
    environment: Option<(&'static str, String)>,
}

impl<'a> BenchClient<'a> {
    /// The rig's module and token.
    pub fn of(rig: &'a Rig) -> Self {
        Self {
            rig,
            module: rig.module(),
            token: rig.label().to_owned(),
            pin: rig.pin(),
            environment: None,
        }
    }

    /// Another module on the rig's token `hsm1`, without the pool.
    pub fn past(rig: &'a Rig, module: impl Into<PathBuf>) -> Self {
        Self {
            module: module.into(),
            token: "hsm1".to_owned(),
            pin: SoftHsm::pin("hsm1"),
            ..Self::of(rig)
        }
    }

    /// Sets an environment variable.
    pub fn with(mut self, name: &'static str, value: String) -> Self {
        self.environment = Some((name, value));
        self
    }

    /// Signs with the P-256 key on this number of threads for this time.
    pub fn sign(&self, threads: usize, time: Duration) -> Result<Measurement> {
        let (token, millis) = (&self.token, time.as_millis());
        let mut run = self
            .rig
            .hsmux("bench sign --json --key pkcs11:object=ec --pin env:PIN")
            .args(&format!("--token pkcs11:token={token} --time {millis}ms"))
            .args(&format!("--concurrency {threads} --direct"))
            .arg(&self.module)
            .env("PIN", &self.pin)
            .limit(300);
        if let Some((name, value)) = &self.environment {
            run = run.env(name, value);
        }
        let finished = run.finish();
        let report: sign::SignReport = serde_json::from_str(&finished.out).map_err(|error| {
            let message = format!("the client's report: {error}\n{finished}");
            Error::request(Kind::Protocol, message)
        })?;
        Ok(report.measurement)
    }
}
