//! C_Login: the pool's own PIN, behind a slow hash. No token is ever asked.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use argon2::{Algorithm, Argon2, Params, Version};
use hsmux_pool::config::PinSource;
use hsmux_token::{Error, Kind, Result, Secret};
use zeroize::Zeroizing;

use crate::throttle::Throttle;

/// Logins that may wait for the one thread that hashes.
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
        // Of all bytes, whatever the first ones were.
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

/// The one place where PINs of applications are looked at: a thread, so that nothing else waits.
pub struct Gate {
    queue: SyncSender<Attempt>,
}

struct Attempt {
    uid: u32,
    pin: Secret,
    against: Arc<PinHash>,
    answer: Box<dyn FnOnce(Result<()>) + Send>,
}

impl Gate {
    /// Starts the thread; it ends with the gate.
    pub fn start() -> Result<Self> {
        let (queue, attempts) = sync_channel::<Attempt>(WAITING);
        thread::Builder::new()
            .name("hsmux-login".into())
            .spawn(move || {
                let mut throttle = Throttle::default();
                for attempt in attempts {
                    let result = attempt.judge(&mut throttle);
                    (attempt.answer)(result);
                }
            })
            .map_err(|e| Error::pool(Kind::Environment, format!("no thread: {e}")))?;
        Ok(Self { queue })
    }

    /// Judges a PIN; `answer` is called on the thread.
    pub fn judge(
        &self,
        uid: u32,
        pin: Secret,
        against: Arc<PinHash>,
        answer: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let answer = Box::new(answer);
        let attempt = Attempt {
            uid,
            pin,
            against,
            answer,
        };
        if let Err(TrySendError::Full(refused) | TrySendError::Disconnected(refused)) =
            self.queue.try_send(attempt)
        {
            (refused.answer)(Err(Error::busy(WAITING, Duration::from_secs(1))));
        }
    }
}

impl Attempt {
    fn judge(&self, throttle: &mut Throttle) -> Result<()> {
        throttle.admit(self.uid, Instant::now())?;
        let right = self.against.is_of(&self.pin)?;
        throttle.record(self.uid, right, Instant::now());
        if right {
            return Ok(());
        }
        Err(Error::request(
            Kind::PinIncorrect,
            "this is not the pool's PIN, which [daemon] pin names; no token was asked",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn right_wrong_and_too_often_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pin");
        hsmux_token::fake::write_secret(&file, "1234\n");
        let against = Arc::new(PinHash::of(&PinSource::File(file)).unwrap());
        let gate = Gate::start().unwrap();
        let (tell, told) = channel();
        let login = |uid, pin: &str| {
            let tell = tell.clone();
            gate.judge(
                uid,
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
