//! C_Login: checks the pool's own PIN by a slow hash. Tokens see none of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use argon2::{Algorithm, Argon2, Params, Version};
use hsmux_config::PinSource;
use hsmux_token::{Displaced, Error, FairQueue, Kind, Result, Secret};
use parking_lot::{Condvar, Mutex};
use zeroize::Zeroizing;

use crate::throttle::Throttle;

/// The most logins that wait for the thread that hashes. If it is full, the user with the most of them loses one.
const WAITING: usize = 256;

/// Argon2id with 8 MiB and two passes: some ten milliseconds, one at a time (RFC 9106, section 4,
/// with the memory that a daemon of 64 MB can spare).
const MEMORY_KIB: u32 = 8 << 10;
const PASSES: u32 = 2;
const HASH_BYTES: usize = 32;

/// A PIN as the daemon keeps it.
pub struct PinHash {
    salt: [u8; 16],
    hash: Zeroizing<[u8; HASH_BYTES]>,
}

impl PinHash {
    /// Reads and hashes a PIN.
    pub fn of(source: &PinSource) -> Result<Self> {
        let mut salt = [0; 16];
        getrandom::fill(&mut salt)
            .map_err(|e| Error::pool(Kind::Environment, format!("no random bytes: {e}")))?;
        let hash = hash(source.read()?.expose(), &salt)?;
        Ok(Self { salt, hash })
    }

    fn is_of(&self, pin: &Secret) -> Result<bool> {
        let found = hash(pin.expose(), &self.salt)?;
        // Compares all bytes, so that the time does not depend on where they differ.
        let differing = found
            .iter()
            .zip(self.hash.iter())
            .fold(0, |d, (a, b)| d | (a ^ b));
        Ok(differing == 0)
    }
}

fn hash(pin: &[u8], salt: &[u8]) -> Result<Zeroizing<[u8; HASH_BYTES]>> {
    let failed = |e| Error::pool(Kind::Environment, format!("the PIN cannot be hashed: {e}"));
    let params = Params::new(MEMORY_KIB, PASSES, 1, Some(HASH_BYTES)).map_err(failed)?;
    let mut out = Zeroizing::new([0; HASH_BYTES]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(pin, salt, &mut out[..])
        .map_err(failed)?;
    Ok(out)
}

/// Checks the PINs of applications, on a thread of its own so that nothing else waits. Users take turns.
pub struct LoginGate(Arc<LoginQueue>);

#[derive(Default)]
struct LoginQueue {
    state: Mutex<LoginState>,
    changed: Condvar,
}

struct LoginState {
    waiting: FairQueue<u32, LoginAttempt>,
    throttle: Throttle,
    ended: bool,
}

impl Default for LoginState {
    fn default() -> Self {
        Self {
            waiting: FairQueue::new(WAITING),
            throttle: Throttle::default(),
            ended: false,
        }
    }
}

struct LoginAttempt {
    account: u32,
    pin: Secret,
    against: Arc<PinHash>,
    answer: Box<dyn FnOnce(Result<()>) + Send>,
}

impl LoginGate {
    /// Starts the thread; it ends with the gate.
    pub fn start() -> Result<Self> {
        let attempts = Arc::<LoginQueue>::default();
        let of_thread = Arc::clone(&attempts);
        thread::Builder::new()
            .name("hsmux-login".into())
            .spawn(move || of_thread.judge_all())
            .map_err(|e| Error::pool(Kind::Environment, format!("no thread: {e}")))?;
        Ok(Self(attempts))
    }

    /// Checks a PIN. Calls `answer` on the thread, or at once with a refusal: if the user has to wait after wrong PINs,
    /// or if the queue has no entry for this user.
    pub fn judge(
        &self,
        account: u32,
        pin: Secret,
        against: Arc<PinHash>,
        answer: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let attempt = LoginAttempt {
            account,
            pin,
            against,
            answer: Box::new(answer),
        };
        let mut state = self.0.state.lock();
        let refused = if let Err(error) = state.throttle.admit(account, Instant::now()) {
            Some((attempt, error))
        } else {
            let displaced = state.waiting.push(account, attempt);
            displaced.map(|Displaced(attempt)| {
                let busy = Error::busy(WAITING, Duration::from_secs(1));
                (attempt, busy)
            })
        };
        drop(state);
        self.0.changed.notify_one();
        if let Some((attempt, error)) = refused {
            (attempt.answer)(Err(error));
        }
    }
}

impl Drop for LoginGate {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.changed.notify_one();
    }
}

impl LoginQueue {
    /// A panic ends one attempt, and the next ones go on.
    fn judge_all(&self) {
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.judge_next())) {
                Ok(Some(())) => {}
                Ok(None) => return,
                Err(_) => tracing::error!("a login ended in a panic"),
            }
        }
    }

    /// `None` at the end.
    fn judge_next(&self) -> Option<()> {
        let mut state = self.state.lock();
        let attempt = loop {
            match state.waiting.pop() {
                Some(attempt) => break attempt,
                None if state.ended => return None,
                None => self.changed.wait(&mut state),
            }
        };
        let account = attempt.account;
        // Checked again: other PINs of this user may have been wrong since this one was queued.
        let admitted = state.throttle.admit(account, Instant::now());
        drop(state);
        let judge = || attempt.against.is_of(&attempt.pin);
        let right = admitted.and_then(|()| {
            catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|_| Err(panicked()))
        });
        if let Ok(right) = right {
            let mut state = self.state.lock();
            state.throttle.record(account, right, Instant::now());
        }
        (attempt.answer)(right.and_then(said));
        Some(())
    }
}

fn panicked() -> Error {
    let message =
        "the PIN could not be checked: that ended in a panic, and the daemon's log says where";
    Error::pool(Kind::Environment, message)
}

fn said(right: bool) -> Result<()> {
    if right {
        return Ok(());
    }
    Err(Error::request(
        Kind::PinIncorrect,
        "this is not the pool's PIN: pin of this socket's [daemon] or [[listener]] names it; no token was asked",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A gate, and its answers by user.
    struct LoginRig {
        gate: LoginGate,
        against: Arc<PinHash>,
        tell: Sender<(u32, Result<()>)>,
        told: Receiver<(u32, Result<()>)>,
    }

    impl LoginRig {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("pin");
            hsmux_token::fake::write_secret(&file, "1234\n");
            let (tell, told) = channel();
            Self {
                gate: LoginGate::start().unwrap(),
                against: Arc::new(PinHash::of(&PinSource::File(file)).unwrap()),
                tell,
                told,
            }
        }

        fn ask(&self, account: u32, pin: &str) {
            let (tell, against) = (self.tell.clone(), Arc::clone(&self.against));
            let answer = move |result| tell.send((account, result)).unwrap();
            self.gate
                .judge(account, Secret::new(pin.into()), against, answer);
        }

        fn answer(&self) -> (u32, Result<()>) {
            self.told.recv_timeout(Duration::from_secs(120)).unwrap()
        }
    }

    #[test]
    fn a_user_who_floods_the_gate_holds_up_nobody_else() {
        let rig = LoginRig::new();
        (0..2 * WAITING).for_each(|_| rig.ask(1, "1234"));
        rig.ask(2, "1234");
        let mut before = 0;
        loop {
            match rig.answer() {
                (2, result) => break result.unwrap(),
                (_, Ok(())) => before += 1,
                (_, Err(error)) => assert_eq!(error.kind(), Kind::Busy, "{error}"),
            }
        }
        // Those that were judged while the others were still coming, the one that ran, and one turn.
        assert!(
            before < WAITING / 2,
            "{before} of the other user came first"
        );
    }

    #[test]
    fn a_panic_ends_one_login_and_not_those_after_it() {
        let rig = LoginRig::new();
        rig.gate.judge(
            1,
            Secret::new(b"1234".to_vec()),
            Arc::clone(&rig.against),
            |_| panic!("what is told ends in a panic"),
        );
        rig.ask(2, "1234");
        rig.answer().1.unwrap();
    }

    #[test]
    fn a_throttled_user_is_refused_before_the_queue() {
        let rig = LoginRig::new();
        for _ in 0..3 {
            rig.ask(1, "1235");
            assert_eq!(rig.answer().1.unwrap_err().kind(), Kind::PinIncorrect);
        }
        let throttled = (0..10).any(|_| {
            rig.ask(1, "1235");
            rig.answer().1.unwrap_err().kind() == Kind::PinThrottled
        });
        assert!(throttled);
        assert!(rig.gate.0.state.lock().waiting.is_empty());
    }

    #[test]
    fn right_wrong_and_too_often_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pin");
        hsmux_token::fake::write_secret(&file, "1234\n");
        let against = Arc::new(PinHash::of(&PinSource::File(file)).unwrap());
        let gate = LoginGate::start().unwrap();
        let (tell, told) = channel();
        let login = |account, pin: &str| {
            let tell = tell.clone();
            gate.judge(
                account,
                Secret::new(pin.into()),
                Arc::clone(&against),
                move |result| {
                    tell.send(result).unwrap();
                },
            );
            told.recv_timeout(Duration::from_secs(120)).unwrap()
        };
        login(1, "1234").unwrap();
        for _ in 0..3 {
            assert_eq!(login(1, "1235").unwrap_err().kind(), Kind::PinIncorrect);
        }
        // A slow machine may need longer for the next than the wait is, but each wrong one doubles it.
        let throttled = (0..10).any(|_| login(1, "1235").unwrap_err().kind() == Kind::PinThrottled);
        assert!(throttled);
        login(2, "1234").unwrap();
    }
}
