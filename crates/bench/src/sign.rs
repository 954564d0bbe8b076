//! The signing evaluation: one key, so many callers, so many signatures.

mod text;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hsmux_token::{Error, Kind, Mechanism, ObjectRef, Operation, Result, Token, Verb};
use serde::{Deserialize, Serialize};

use crate::engine::{self, Control, Load, Plan, Until};
use crate::target::{self, About};
use crate::{Head, Key, Measurement, SigningRow, reference};

/// What is signed, by whom, how often.
pub struct Options {
    /// The pool, the daemon, or one token of a vendor's module.
    pub token: Arc<dyn Token>,
    /// What the report calls it: `pool web`, `direct /usr/lib/softhsm/libsofthsm2.so`.
    pub name: String,
    /// With which key.
    pub key: Key,
    /// How, if not as usual for the key.
    pub mechanism: Option<Mechanism>,
    /// Bytes that each signature is over; 32 is a digest.
    pub data_len: usize,
    /// How the signatures are started.
    pub load: Load,
    /// When to end.
    pub until: Until,
    /// The same load before, of which nothing counts.
    pub warm_up: Duration,
    /// Whether every signature is checked, after the measurement.
    pub verify: bool,
    /// How long one signature may take.
    pub deadline: Duration,
    /// Other processes to account for, each with all that descend from it: the daemon.
    pub processes: Vec<u32>,
}

impl Options {
    /// A closed loop with what is usual: 32 bytes, warm-up, every signature checked.
    pub fn new(
        token: Arc<dyn Token>,
        name: impl Into<String>,
        key: Key,
        concurrency: usize,
        count: u64,
    ) -> Self {
        Self {
            token,
            name: name.into(),
            key,
            mechanism: None,
            data_len: 32,
            load: Load::Closed {
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

/// What the evaluation found. Its JSON is described by `docs/bench-schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Command, time and machine.
    #[serde(flatten)]
    pub head: Head,
    /// What was asked.
    pub target: String,
    /// With which key.
    pub key: About,
    /// `CKM_ECDSA`.
    pub mechanism: String,
    /// Bytes that each signature was over.
    pub data_len: usize,
    /// Whether every signature was checked.
    pub verify: bool,
    /// What was measured.
    pub measurement: Measurement,
    /// Published figures of an evaluation of the same kind: of keys on P-256, and of no others.
    pub reference: Vec<SigningRow>,
}

/// Measures. Errors of single signatures are in the report; an error here means that nothing could
/// be measured.
pub fn run(options: &Options, control: Control<'_>) -> Result<Report> {
    let mechanism = options.mechanism.as_ref().unwrap_or(&options.key.mechanism);
    target::fits(&options.key, mechanism)?;
    let measurement = measure(options, mechanism, control)?;
    Ok(Report {
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

/// Only the measurement, for those who compare.
pub fn measure(
    options: &Options,
    mechanism: &Mechanism,
    control: Control<'_>,
) -> Result<Measurement> {
    if options.load.workers() == 0 {
        return Err(Error::request(Kind::Invalid, "concurrency: at least 1"));
    }
    let work = Work::new(options, mechanism)?;
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

/// The prepared operations: each worker signs data of its own, so that an answer that belongs to
/// another caller is found out.
struct Work<'a> {
    options: &'a Options,
    mechanism: &'a Mechanism,
    lines: Vec<Line>,
}

struct Line {
    operation: Operation,
    data: Bytes,
    first: OnceLock<Bytes>,
}

impl<'a> Work<'a> {
    fn new(options: &'a Options, mechanism: &'a Mechanism) -> Result<Self> {
        let line = |_| {
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
            Ok(Line {
                operation,
                data,
                first: OnceLock::new(),
            })
        };
        let lines = (0..options.load.workers())
            .map(line)
            .collect::<Result<_>>()?;
        Ok(Self {
            options,
            mechanism,
            lines,
        })
    }

    fn sign(&self, worker: usize) -> Result<Bytes> {
        let deadline = Instant::now() + self.options.deadline;
        self.options
            .token
            .execute(&self.lines[worker].operation, deadline)?
            .into_bytes()
    }

    fn check(&self, worker: usize, signature: &[u8]) -> Result<()> {
        let line = &self.lines[worker];
        let first = line.first.get_or_init(|| Bytes::copy_from_slice(signature));
        target::check(
            &self.options.key,
            self.mechanism,
            &line.data,
            first,
            signature,
        )
    }
}
