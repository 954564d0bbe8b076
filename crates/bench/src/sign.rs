//! The signing evaluation: one key, a number of callers and signatures.

mod text;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hsmux_token::{Error, Kind, Mechanism, ObjectRef, Operation, Result, Token, Verb};
use serde::{Deserialize, Serialize};

use crate::engine::{self, LoadModel, Plan, RunControl, Until};
use crate::target::{self, KeyDescription};
use crate::{BenchKey, Head, Measurement, SigningRow, reference};

/// Options of the evaluation.
pub struct SignOptions {
    /// The pool, the daemon, or one token of a vendor's module.
    pub token: Arc<dyn Token>,
    /// The name in the report: `pool web`, `direct /usr/lib/softhsm/libsofthsm2.so`.
    pub name: String,
    /// The key.
    pub key: BenchKey,
    /// The mechanism, if not the usual one of the key.
    pub mechanism: Option<Mechanism>,
    /// Length of the signed data in bytes; 32 is a digest.
    pub data_len: usize,
    /// The start of signatures.
    pub load: LoadModel,
    /// The end of the measurement.
    pub until: Until,
    /// The duration of the same load before the measurement.
    pub warm_up: Duration,
    /// Whether every signature is checked, after the measurement.
    pub verify: bool,
    /// How long one signature may take.
    pub deadline: Duration,
    /// Other processes to account for, with their descendants: the daemon.
    pub processes: Vec<u32>,
}

impl SignOptions {
    /// A closed loop with defaults: 32 bytes, warm-up, every signature checked.
    pub fn new(
        token: Arc<dyn Token>,
        name: impl Into<String>,
        key: BenchKey,
        concurrency: usize,
        count: u64,
    ) -> Self {
        Self {
            token,
            name: name.into(),
            key,
            mechanism: None,
            data_len: 32,
            load: LoadModel::Closed {
                workers: concurrency,
            },
            until: Until::Count(count),
            warm_up: Duration::from_millis(500),
            verify: true,
            deadline: Duration::from_secs(30),
            processes: Vec::new(),
        }
    }
}

/// The result. Its JSON is described by `docs/bench-schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SignReport {
    /// Command, time and machine.
    #[serde(flatten)]
    pub head: Head,
    /// The pool or token.
    pub target: String,
    /// The key.
    pub key: KeyDescription,
    /// `CKM_ECDSA`.
    pub mechanism: String,
    /// Length of the signed data in bytes.
    pub data_len: usize,
    /// Whether every signature was checked.
    pub verify: bool,
    /// The measurement.
    pub measurement: Measurement,
    /// Published figures of the same kind, for keys on P-256 only.
    pub reference: Vec<SigningRow>,
}

/// Measures. Errors of single signatures are in the report; an error here means that nothing could be measured.
pub fn run(options: &SignOptions, control: RunControl<'_>) -> Result<SignReport> {
    let mechanism = options.mechanism.as_ref().unwrap_or(&options.key.mechanism);
    target::fits(&options.key, mechanism)?;
    let measurement = measure(options, mechanism, control)?;
    Ok(SignReport {
        head: Head::now("sign"),
        target: options.name.clone(),
        key: options.key.about.clone(),
        mechanism: mechanism.name().into_owned(),
        data_len: options.data_len,
        verify: options.verify,
        measurement,
        reference: if options.key.is_p256() {
            reference::signing()
        } else {
            Vec::new()
        },
    })
}

/// Only the measurement, for comparisons.
pub fn measure(
    options: &SignOptions,
    mechanism: &Mechanism,
    control: RunControl<'_>,
) -> Result<Measurement> {
    if options.load.workers() == 0 {
        return Err(Error::request(Kind::Invalid, "concurrency: at least 1"));
    }
    let work = SignWorkload::new(options, mechanism)?;
    let plan = Plan {
        load: options.load,
        until: options.until,
        warm_up: options.warm_up,
        processes: options.processes.clone(),
    };
    let run = |worker: usize| work.sign(worker);
    let check = |worker: usize, signature: &[u8]| work.check(worker, signature);
    let check = options.verify.then_some(&check as &engine::Check<'_>);
    Ok(engine::measure(&plan, control, &run, check))
}

/// The prepared operations: each worker signs different data, to detect mixed-up answers.
struct SignWorkload<'a> {
    options: &'a SignOptions,
    mechanism: &'a Mechanism,
    prepared: Vec<PreparedSignature>,
}

/// The operation of one worker, and the first answer.
struct PreparedSignature {
    operation: Operation,
    data: Bytes,
    first: OnceLock<Bytes>,
}

impl<'a> SignWorkload<'a> {
    fn new(options: &'a SignOptions, mechanism: &'a Mechanism) -> Result<Self> {
        let prepare = |_| {
            let mut data = vec![0; options.data_len];
            getrandom::fill(&mut data).map_err(|error| {
                Error::pool(
                    Kind::Environment,
                    format!("the system gave no random bytes: {error}"),
                )
            })?;
            let data = Bytes::from(data);
            let operation = Operation::Use {
                verb: Verb::Sign,
                key: ObjectRef::Token(options.key.id),
                mechanism: mechanism.clone(),
                data: data.clone().into(),
            };
            Ok(PreparedSignature {
                operation,
                data,
                first: OnceLock::new(),
            })
        };
        let prepared = (0..options.load.workers())
            .map(prepare)
            .collect::<Result<_>>()?;
        Ok(Self {
            options,
            mechanism,
            prepared,
        })
    }

    fn sign(&self, worker: usize) -> Result<Bytes> {
        let deadline = Instant::now() + self.options.deadline;
        self.options
            .token
            .execute(&self.prepared[worker].operation, deadline)?
            .into_bytes()
    }

    fn check(&self, worker: usize, signature: &[u8]) -> Result<()> {
        let prepared = &self.prepared[worker];
        let first = prepared
            .first
            .get_or_init(|| Bytes::copy_from_slice(signature));
        target::check(
            &self.options.key,
            self.mechanism,
            &prepared.data,
            first,
            signature,
        )
    }
}
