//! One test: a signature over fresh data, and its verification.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hsmux_software::PublicKey;
use hsmux_token::{Error, Kind, Mechanism, ObjectRef, Operation, Outcome, Result, Token, Verb, ck};

use super::BurnInOptions;
use super::ledger::{Ledger, Verdict};

/// After a failed test the caller waits, longer each time, so that a restart of the daemon does not use up the tests.
/// The shortest and the longest wait.
const PAUSE: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// How often a waiting caller checks for an interruption.
const SLICE: Duration = Duration::from_millis(50);

/// Shared state of the callers.
pub struct TestRunner<'a> {
    options: &'a BurnInOptions,
    mechanism: &'a Mechanism,
    public: &'a PublicKey,
    ledger: &'a Ledger,
    stop: &'a AtomicBool,
    /// Consecutive failed tests of each caller.
    consecutive_failures: Vec<AtomicU32>,
}

impl<'a> TestRunner<'a> {
    /// Checks that signatures of this key and mechanism can be verified.
    pub fn new(
        options: &'a BurnInOptions,
        mechanism: &'a Mechanism,
        ledger: &'a Ledger,
        stop: &'a AtomicBool,
    ) -> Result<Self> {
        let Some(public) = &options.key.public else {
            let message = format!(
                "key {:?}: a burn-in verifies each signature, and a {} key has no public half",
                options.key.about.label, options.key.about.kind
            );
            return Err(Error::request(Kind::Invalid, message));
        };
        // An empty signature is wrong; any other error would also reject correct ones.
        let probe = public.verify(mechanism, &vec![0; options.data_len], &[]);
        if let Err(error) = probe
            && !says_wrong(&error)
        {
            return Err(error.at("signatures cannot be verified"));
        }
        Ok(Self {
            options,
            mechanism,
            public,
            ledger,
            stop,
            consecutive_failures: (0..options.callers).map(|_| AtomicU32::new(0)).collect(),
        })
    }

    /// Runs a test and records its result. The return value is for the engine's own count.
    pub fn test(&self, caller: usize) -> Result<Bytes> {
        let at = caller % self.options.tokens.len();
        let verdict = self.judge(&*self.options.tokens[at].token);
        self.ledger.enter(at, &verdict);
        match verdict {
            Verdict::Passed => {
                self.consecutive_failures[caller].store(0, Relaxed);
                Ok(Bytes::new())
            }
            Verdict::Failed(error) | Verdict::Wrong(error) => {
                self.pause(self.consecutive_failures[caller].fetch_add(1, Relaxed));
                Err(error)
            }
        }
    }

    fn judge(&self, token: &dyn Token) -> Verdict {
        let (data, signature) = match self.sign(token) {
            Ok(signed) => signed,
            Err(error) => return Verdict::Failed(error),
        };
        match self.public.verify(self.mechanism, &data, &signature) {
            Ok(()) => Verdict::Passed,
            Err(error) => Verdict::Wrong(error),
        }
    }

    /// New data each time, to detect answers to other requests.
    fn sign(&self, token: &dyn Token) -> Result<(Bytes, Bytes)> {
        let mut data = vec![0; self.options.data_len];
        getrandom::fill(&mut data).map_err(|error| {
            let message = format!("the system gave no random bytes: {error}");
            Error::pool(Kind::Environment, message)
        })?;
        let data = Bytes::from(data);
        let operation = Operation::Use {
            verb: Verb::Sign,
            key: ObjectRef::Token(self.options.key.id),
            mechanism: self.mechanism.clone(),
            data: data.clone().into(),
        };
        let deadline = Instant::now() + self.options.deadline;
        let signature = token
            .execute(&operation, deadline)
            .and_then(Outcome::into_bytes)?;
        Ok((data, signature))
    }

    fn pause(&self, consecutive_failures: u32) {
        let [shortest, longest] = PAUSE;
        let over =
            Instant::now() + (shortest * 2_u32.pow(consecutive_failures.min(10))).min(longest);
        while !self.stop.load(Relaxed) {
            let left = over.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(SLICE));
        }
    }
}

/// Whether the error concerns the signature, not the key or the mechanism.
fn says_wrong(error: &Error) -> bool {
    [ck::CKR_SIGNATURE_INVALID, ck::CKR_SIGNATURE_LEN_RANGE]
        .map(Some)
        .contains(&error.code())
}
