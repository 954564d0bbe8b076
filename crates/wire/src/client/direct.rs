//! Direct connections: the daemon has handed them over to a worker, each for uses of one key.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hsmux_token::sync::Mutex;
use hsmux_token::{ObjectId, Scope};

use super::{Client, DaemonConnection, MAX_IDLE};
use crate::backoff::Backoff;
use crate::connection::Connection;
use crate::direct::{key_of_short_use, processor};
use crate::{Answer, Call, Reply, frame};

/// Uses of one key in a row before a direct connection is asked for.
const WORTH: u32 = 16;

/// A use that takes longer is repeated at the daemon, which handles a worker that hangs.
const PATIENCE: Duration = Duration::from_secs(1);

/// Idle direct connections, and the state that decides about asking for another.
#[derive(Default)]
pub(super) struct WorkerConnections {
    idle: Mutex<Vec<WorkerConnection>>,
    usual: Mutex<Usual>,
    offered: AtomicBool,
}

/// A direct connection to a worker. It does not keep the application's login: the daemon may end it at any time.
struct WorkerConnection {
    connection: Connection,
    version: u16,
    key: ObjectId,
    /// The CPU that its worker was on last ([`Reply::cpu`]).
    cpu: Option<u32>,
    since: Instant,
}

/// The key of the last uses in a row, and the back-off.
#[derive(Default)]
struct Usual {
    key: Option<ObjectId>,
    count: u32,
    backoff: Backoff,
}

impl WorkerConnections {
    /// Notes whether the daemon hands connections over.
    pub fn offered(&self, offered: bool) {
        self.offered.store(offered, Ordering::Relaxed);
    }

    /// Takes an idle connection for this key, preferably to a worker that was on this CPU.
    fn take(&self, key: &ObjectId, here: u32) -> Option<WorkerConnection> {
        let mut idle = self.idle.lock();
        let is_near = |(_, worker): &(usize, &WorkerConnection)| worker.cpu == Some(here);
        let all = idle.iter().enumerate().rev();
        let mut of_key = all.filter(|(_, worker)| worker.key == *key);
        let last = of_key.clone().next()?;
        let (at, _) = of_key.find(is_near).unwrap_or(last);
        Some(idle.swap_remove(at))
    }

    fn keep(&self, worker: WorkerConnection) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(worker);
        }
    }

    /// Counts a use of the key. Answers whether to ask for another direct connection.
    fn is_worth_asking(&self, key: ObjectId) -> bool {
        let mut usual = self.usual.lock();
        if usual.key != Some(key) {
            usual.key = Some(key);
            usual.count = 0;
        }
        usual.count += 1;
        if usual.count < WORTH || !usual.backoff.is_over() {
            return false;
        }
        usual.count = 0;
        true
    }

    fn pause(&self) {
        self.usual.lock().backoff.fail();
    }

    /// A direct connection has ended after this time.
    fn ended(&self, lived: Duration) {
        self.usual.lock().backoff.ended(lived);
    }
}

impl Client {
    /// The worker's answer; `None` if the daemon has to be asked.
    pub(super) fn exchange_directly(&self, call: &Call, deadline: Instant) -> Option<Reply> {
        let direct = &self.direct;
        if !direct.offered.load(Ordering::Relaxed) {
            return None;
        }
        let key = short_use(call)?;
        let mut worker = match direct.take(&key, processor()) {
            Some(worker) => worker,
            None if direct.is_worth_asking(key) => self.ask_for(key, deadline)?,
            None => return None,
        };
        let soon = deadline.min(Instant::now() + PATIENCE);
        let answer = worker.connection.exchange(call, Some(soon)).ok();
        let reply = answer.and_then(|a| frame::decode_reply(worker.version, &a.into()).ok());
        match reply {
            Some(reply) if !blames_token(&reply) => {
                worker.cpu = reply.cpu;
                direct.keep(worker);
                Some(reply)
            }
            // Uses may be repeated. The daemon decides what follows from a failed token.
            _ => {
                direct.ended(worker.since.elapsed());
                None
            }
        }
    }

    fn ask_for(&self, key: ObjectId, deadline: Instant) -> Option<WorkerConnection> {
        // One connection stays: the daemon forgets an application's login with its last connection.
        let mut idle = self.idle.lock();
        let spare = (idle.len() > 1).then(|| idle.pop()).flatten();
        drop(idle);
        let daemon = spare.map_or_else(|| self.fresh(deadline).ok(), Some);
        let daemon = daemon.and_then(|daemon| self.ask_on(daemon, key, deadline));
        if daemon.is_none() {
            self.direct.pause();
        }
        let DaemonConnection {
            connection,
            version,
            ..
        } = daemon?;
        Some(WorkerConnection {
            connection,
            version,
            key,
            cpu: None,
            since: Instant::now(),
        })
    }

    /// Asks on this connection. Answers it if it is handed over; otherwise the client keeps it.
    fn ask_on(
        &self,
        mut daemon: DaemonConnection,
        key: ObjectId,
        deadline: Instant,
    ) -> Option<DaemonConnection> {
        let call = Call::HandOver(key);
        let answer = daemon.connection.exchange(&call, Some(deadline)).ok()?;
        let reply = frame::decode_reply(daemon.version, &answer.into()).ok()?;
        if matches!(reply.answer, Answer::Done) {
            return Some(daemon);
        }
        self.keep(daemon);
        None
    }
}

/// The key of a call that is one short use of a token's key.
fn short_use(call: &Call) -> Option<ObjectId> {
    let Call::Execute(items) = call else {
        return None;
    };
    let [item] = &items[..] else { return None };
    key_of_short_use(&item.operation)
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

    fn worker(key: ObjectId, cpu: Option<u32>) -> WorkerConnection {
        let (near, _) = UnixStream::pair().unwrap();
        WorkerConnection {
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
        let direct = WorkerConnections::default();
        for (key, cpu) in [
            (ours, Some(1)),
            (ours, Some(0)),
            (ours, None),
            (other, Some(1)),
        ] {
            direct.keep(worker(key, cpu));
        }
        let taken = |key| direct.take(&key, 1).map(|worker| worker.cpu);
        assert_eq!(taken(ours), Some(Some(1)));
        assert_eq!(taken(ours), Some(None), "otherwise the one used last");
        assert_eq!(taken(ours), Some(Some(0)));
        assert_eq!(taken(ours), None, "never one of another key");
        assert_eq!(taken(other), Some(Some(1)));
    }
}
