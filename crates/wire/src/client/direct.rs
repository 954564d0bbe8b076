//! The short way: connections that the daemon has handed over to a worker, each for uses of one key.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hsmux_token::sync::Mutex;
use hsmux_token::{ObjectId, Params, Scope};

use super::{Client, Line, MAX_IDLE};
use crate::connection::Connection;
use crate::direct::{LONGEST, processor};
use crate::{Answer, Call, Reply, frame};

/// So many uses of one key, one after the other, are worth a connection of its own.
const WORTH: u32 = 16;

/// What is around the data in a frame is never so long.
const AROUND: usize = 4 << 10;

/// A use that takes longer is asked of the daemon, which knows what to do about a worker that hangs.
const PATIENCE: Duration = Duration::from_secs(1);

/// After a refusal, and after a connection that ended, it is not asked for again at once: this long, and
/// twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Connections that were handed over, and whether another one is worth while.
#[derive(Default)]
pub(super) struct Direct {
    idle: Mutex<Vec<Handed>>,
    usual: Mutex<Usual>,
    offered: AtomicBool,
}

/// Not one of those that keep the application's login: the daemon may end it at any time.
struct Handed {
    connection: Connection,
    version: u16,
    key: ObjectId,
    /// The CPU that its worker was on last ([`Reply::cpu`]).
    cpu: Option<u32>,
    since: Instant,
}

/// What is asked of the daemon, one after the other.
#[derive(Default)]
struct Usual {
    key: Option<ObjectId>,
    count: u32,
    pause: Duration,
    not_before: Option<Instant>,
}

impl Direct {
    /// Whether the daemon hands connections over.
    pub fn offered(&self, offered: bool) {
        self.offered.store(offered, Ordering::Relaxed);
    }

    /// One to a worker that was on the same CPU, if there is a choice.
    fn take(&self, key: &ObjectId, here: u32) -> Option<Handed> {
        let mut idle = self.idle.lock();
        let is_near = |(_, handed): &(usize, &Handed)| handed.cpu == Some(here);
        let all = idle.iter().enumerate().rev();
        let mut of_key = all.filter(|(_, handed)| handed.key == *key);
        let last = of_key.clone().next()?;
        let (at, _) = of_key.find(is_near).unwrap_or(last);
        Some(idle.swap_remove(at))
    }

    fn keep(&self, handed: Handed) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(handed);
        }
    }

    /// Whether one more is to be asked for; notes that the key is used.
    fn is_worth_asking(&self, key: ObjectId) -> bool {
        let mut usual = self.usual.lock();
        if usual.key != Some(key) {
            usual.key = Some(key);
            usual.count = 0;
        }
        usual.count += 1;
        if usual.count < WORTH || usual.not_before.is_some_and(|time| Instant::now() < time) {
            return false;
        }
        usual.count = 0;
        true
    }

    fn pause(&self) {
        let mut usual = self.usual.lock();
        usual.pause = (2 * usual.pause).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        usual.not_before = Some(Instant::now() + usual.pause);
    }

    /// One has ended that lived for so long.
    fn ended(&self, lived: Duration) {
        let mut usual = self.usual.lock();
        // It was worth more than the time without one.
        if lived > usual.pause {
            usual.pause = Duration::ZERO;
        }
        drop(usual);
        self.pause();
    }
}

impl Client {
    /// The worker's answer; `None` where the daemon is to be asked.
    pub(super) fn exchange_directly(&self, call: &Call, deadline: Instant) -> Option<Reply> {
        let direct = &self.direct;
        if !direct.offered.load(Ordering::Relaxed) {
            return None;
        }
        let key = short_use(call)?;
        let mut handed = match direct.take(&key, processor()) {
            Some(handed) => handed,
            None if direct.is_worth_asking(key) => self.ask_for(key, deadline)?,
            None => return None,
        };
        let soon = deadline.min(Instant::now() + PATIENCE);
        let answer = handed.connection.exchange(call, Some(soon)).ok();
        let reply = answer.and_then(|a| frame::decode_reply(handed.version, &a.into()).ok());
        match reply {
            Some(reply) if !blames_token(&reply) => {
                handed.cpu = reply.cpu;
                direct.keep(handed);
                Some(reply)
            }
            // What failed there may be repeated, and what follows from it is the daemon's to say.
            _ => {
                direct.ended(handed.since.elapsed());
                None
            }
        }
    }

    fn ask_for(&self, key: ObjectId, deadline: Instant) -> Option<Handed> {
        // One stays: with an application's last connection the daemon forgets its login.
        let mut idle = self.idle.lock();
        let spare = (idle.len() > 1).then(|| idle.pop()).flatten();
        drop(idle);
        let line = spare.map_or_else(|| self.fresh(deadline).ok(), Some);
        let line = line.and_then(|line| self.ask_on(line, key, deadline));
        if line.is_none() {
            self.direct.pause();
        }
        let Line {
            connection,
            version,
            ..
        } = line?;
        Some(Handed {
            connection,
            version,
            key,
            cpu: None,
            since: Instant::now(),
        })
    }

    /// The connection, if it is handed over; otherwise it goes on as before.
    fn ask_on(&self, mut line: Line, key: ObjectId, deadline: Instant) -> Option<Line> {
        let call = Call::HandOver(key);
        let answer = line.connection.exchange(&call, Some(deadline)).ok()?;
        let reply = frame::decode_reply(line.version, &answer.into()).ok()?;
        if matches!(reply.answer, Answer::Done) {
            return Some(line);
        }
        self.keep(line);
        None
    }
}

/// The key of a call that is one short use of a token's key.
fn short_use(call: &Call) -> Option<ObjectId> {
    let Call::Execute(items) = call else {
        return None;
    };
    let [item] = &items[..] else { return None };
    let (_, key, mechanism, data) = item.operation.key_use()?;
    let params = match &mechanism.params {
        Params::Bytes(bytes) => bytes.len(),
        Params::Gcm(gcm) => gcm.aad.len(),
        _ => 0,
    };
    (data.len() + params + AROUND < LONGEST).then_some(key)
}

fn blames_token(reply: &Reply) -> bool {
    match &reply.answer {
        Answer::Results(results) => match &results[..] {
            [result] => result.as_ref().is_err_and(|e| e.scope() == Scope::Token),
            _ => true,
        },
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn handed(key: ObjectId, cpu: Option<u32>) -> Handed {
        let (near, _) = UnixStream::pair().unwrap();
        Handed {
            connection: Connection::new(near),
            version: 2,
            key,
            cpu,
            since: Instant::now(),
        }
    }

    #[test]
    fn a_worker_on_the_same_cpu_is_asked_before_others_of_its_key() {
        let [ours, other] = [b"ours", b"else"].map(|der| ObjectId::of_certificate(der));
        let direct = Direct::default();
        for (key, cpu) in [
            (ours, Some(1)),
            (ours, Some(0)),
            (ours, None),
            (other, Some(1)),
        ] {
            direct.keep(handed(key, cpu));
        }
        let taken = |key| direct.take(&key, 1).map(|handed| handed.cpu);
        assert_eq!(taken(ours), Some(Some(1)));
        assert_eq!(taken(ours), Some(None), "otherwise the one used last");
        assert_eq!(taken(ours), Some(Some(0)));
        assert_eq!(taken(ours), None, "never one of another key");
        assert_eq!(taken(other), Some(Some(1)));
    }
}
