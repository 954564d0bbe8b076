//! The state file: the subject of a burn-in, and its results so far.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use hsmux_token::{Error, Kind, Mechanism, Result};
use serde::{Deserialize, Serialize};

use super::{BurnInOptions, FailureGroup};
use crate::memory::MemorySamples;
use crate::series::Series;
use crate::target::KeyDescription;

/// The version of the format; others are refused.
const FORM: &str = "hsmux-burn-in/1";

/// The contents of a state file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurnInState {
    form: String,
    /// What is tested.
    pub subject: Subject,
    /// Start of the first run (RFC 3339, UTC).
    pub begun_at: String,
    /// Number of runs.
    pub runs: u32,
    /// Time of all runs.
    pub elapsed_s: f64,
    /// The counts of the tested tokens, in their order.
    pub counts: Vec<Count>,
    /// The work of the members behind a pool.
    pub members: Vec<Share>,
    /// Failed tests.
    pub failures: Vec<FailureGroup>,
    /// Finished tests over the time of the run.
    pub course: Series,
    /// Memory of the processes.
    pub memory: Vec<MemorySamples>,
}

/// The subject of the tests; only a run with the same subject may continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The name in the options.
    pub target: String,
    /// The tested tokens.
    pub tokens: Vec<String>,
    /// The key's description.
    pub key: KeyDescription,
    /// The key's identifier ([`hsmux_token::ObjectId`]).
    pub key_id: String,
    /// `CKM_ECDSA`.
    pub mechanism: String,
    /// Length of the signed data in bytes.
    pub data_len: usize,
}

/// Tests of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub name: String,
    pub passed: u64,
    pub failed: u64,
    pub wrong: u64,
}

/// The work of a member behind a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub name: String,
    pub served: u64,
    pub failed: u64,
}

/// Reads the file, or starts a new burn-in.
pub fn open(options: &BurnInOptions, mechanism: &Mechanism) -> Result<BurnInState> {
    let subject = Subject::of(options, mechanism);
    if options.restart {
        return Ok(BurnInState::new(subject));
    }
    let Some(state) = BurnInState::read(&options.state)? else {
        return Ok(BurnInState::new(subject));
    };
    match state.subject.difference(&subject) {
        None => Ok(state),
        Some(difference) => Err(Error::request(
            Kind::Invalid,
            format!(
                "{} is the state of another burn-in: {difference}; name another file, or begin anew",
                options.state.display()
            ),
        )),
    }
}

impl BurnInState {
    fn new(subject: Subject) -> Self {
        let count = |name: &String| Count {
            name: name.clone(),
            passed: 0,
            failed: 0,
            wrong: 0,
        };
        Self {
            form: FORM.to_owned(),
            begun_at: crate::report::now(),
            runs: 0,
            elapsed_s: 0.0,
            counts: subject.tokens.iter().map(count).collect(),
            members: Vec::new(),
            failures: Vec::new(),
            course: Series::default(),
            memory: Vec::new(),
            subject,
        }
    }

    fn read(path: &Path) -> Result<Option<Self>> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", path, &error)),
        };
        let state: Self = serde_json::from_slice(&text)
            .map_err(|error| failed("this is no state of a burn-in", path, &error))?;
        let names = |counts: &[Count]| counts.iter().map(|count| count.name.clone()).collect();
        let tokens: Vec<String> = names(&state.counts);
        if state.form != FORM || tokens != state.subject.tokens {
            let form = format!("its form is {:?}, not {FORM:?}", state.form);
            return Err(failed("this is no state of a burn-in", path, &form));
        }
        Ok(Some(state))
    }

    /// Replaces the file atomically: after a crash it is the old or the new one.
    pub fn write(&self, path: &Path) -> Result<()> {
        crate::record::replace(path, self).map_err(|error| failed("write", path, &error))
    }
}

impl Subject {
    fn of(options: &BurnInOptions, mechanism: &Mechanism) -> Self {
        let name = |named_token: &super::NamedToken| named_token.name.clone();
        Self {
            target: options.name.clone(),
            tokens: options.tokens.iter().map(name).collect(),
            key: options.key.about.clone(),
            key_id: options.key.id.to_string(),
            mechanism: mechanism.name().into_owned(),
            data_len: options.data_len,
        }
    }

    /// The first difference to another subject.
    fn difference(&self, asked: &Self) -> Option<String> {
        let things = |subject: &Self| {
            let key = format!("{:?} ({})", subject.key.label, subject.key_id);
            [
                ("key", key),
                ("target", subject.target.clone()),
                ("tokens", subject.tokens.join(", ")),
                ("mechanism", subject.mechanism.clone()),
                ("length of data", subject.data_len.to_string()),
            ]
        };
        let mut pairs = things(self).into_iter().zip(things(asked));
        pairs.find_map(|((thing, has), (_, wanted))| {
            (has != wanted).then(|| format!("its {thing} is {has}, not {wanted}"))
        })
    }
}

fn failed(what: &str, path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::pool(
        Kind::Environment,
        format!("{}: {what}: {why}", path.display()),
    )
}
