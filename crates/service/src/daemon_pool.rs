//! The daemon's pool, as a service uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use hsmux_pool::{Changes, Connector, Options, Pool, Seat};
use hsmux_token::{Batch, Done, ObjectRef, Operation, Outcome, Request, Result, Token};
use hsmux_wire::{Reactor, RemoteToken};

use crate::connector::{DaemonConnector, NAME};
use crate::{Daemon, Estimates, Readings};

/// Where requests wait for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queueing {
    /// In the service: there is a connection for each operation that the daemon's tokens do at once.
    InService,
    /// In the daemon, which knows the tokens of each key: there is a connection for each request that its queue takes.
    InDaemon,
}

/// The daemon's pool in a service.
pub struct DaemonPool {
    /// A pool whose only member is the daemon.
    pub pool: Arc<Pool>,
    /// Waiting times of its keys.
    pub estimates: Estimates,
    connector: Arc<DaemonConnector>,
}

impl DaemonPool {
    /// Submits a use of a key, or another operation that changes no token. Dropping the result while the request waits
    /// in the daemon withdraws it.
    pub fn submit(&self, request: Request) -> Submitted {
        if let Operation::Use {
            key: ObjectRef::Token(key),
            ..
        } = &request.operation
        {
            self.estimates.count_use(key);
        }
        let number = request.behalf.as_ref().map_or(0, |behalf| behalf.request);
        let has_answer = Arc::new(AtomicBool::new(false));
        let (done, answered) = (request.done, Arc::clone(&has_answer));
        let done = Done::new(move |result| {
            answered.store(true, Ordering::Relaxed);
            done.complete(result);
        });
        let token = match self.connector.newest() {
            Ok(token) => {
                token.submit(Batch::from_buf([Request { done, ..request }]));
                Some(token)
            }
            Err(error) => {
                done.complete(Err(error));
                None
            }
        };
        Submitted {
            connector: Arc::clone(&self.connector),
            token,
            number,
            has_answer,
        }
    }

    /// What the daemon does now. Blocks.
    pub fn readings(&self) -> Result<Readings> {
        Readings::from_json(&self.connector.newest()?.readings()?)
    }
}

/// A request at the daemon. Dropping it withdraws the request, unless it has its answer.
#[must_use = "dropping this withdraws the request"]
pub struct Submitted {
    connector: Arc<DaemonConnector>,
    /// Its connections stay open for it, though others may have replaced them.
    token: Option<Arc<RemoteToken>>,
    number: u64,
    has_answer: Arc<AtomicBool>,
}

impl Drop for Submitted {
    fn drop(&mut self) {
        if self.number == 0 || self.has_answer.load(Ordering::Relaxed) {
            return;
        }
        let is_here = |token: &Arc<RemoteToken>| token.withdraw_waiting(self.number);
        if !self.token.as_ref().is_some_and(is_here) {
            self.connector.withdraw(self.number);
        }
    }
}

/// The number of a new request, for [`hsmux_token::Behalf::request`].
pub fn request_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Connects to the daemon. Answers come on the thread that turns the reactor.
pub fn pool(
    daemon: &Arc<Daemon>,
    reactor: &Arc<Reactor>,
    queueing: Queueing,
) -> Result<DaemonPool> {
    let options = Options {
        answers: None,
        ..Options::from(&*daemon.config())
    };
    let queue = u32::try_from(options.queue).unwrap_or(u32::MAX);
    let connector = DaemonConnector::start(daemon, reactor, queueing, queue)?;
    let seat = Seat {
        name: NAME.to_owned(),
        member: NAME.to_owned(),
        weight: 1,
        timeout: options.deadline,
        connector: Arc::clone(&connector) as Arc<dyn Connector>,
    };
    let pool = Pool::start(options, vec![seat])?;
    pool.set_changes(Arc::new(DaemonChanges(Arc::clone(&connector))));
    Ok(DaemonPool {
        pool,
        estimates: Estimates::start(Arc::clone(&connector))?,
        connector,
    })
}

/// Changes of token objects, which the daemon carries out.
struct DaemonChanges(Arc<DaemonConnector>);

impl Changes for DaemonChanges {
    fn change(&self, pool: &Pool, operation: Operation, deadline: Instant) -> Result<Outcome> {
        let destroyed = match &operation {
            Operation::Destroy {
                object: ObjectRef::Token(id),
            } => Some(*id),
            _ => None,
        };
        let outcome = self.0.execute(operation, deadline)?;
        match (&outcome, destroyed) {
            (_, Some(id)) => pool.show_change(NAME, &[], &[id]),
            (Outcome::Objects(made), None) => {
                let made: Vec<_> = made.iter().map(|made| made.object.clone()).collect();
                pool.show_change(NAME, &made, &[]);
            }
            _ => pool.refresh(NAME)?,
        }
        Ok(outcome)
    }
}
