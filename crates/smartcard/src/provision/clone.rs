//! All keys of one card to many others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver as Queue, channel};
use std::thread;

use super::access::{Access, PinTryGuard, may_try};
use super::receive::{self, CardProgress, ReceiveResult, Receiver, TransferItem};
use super::{ProvisionError, Result, domain};
use crate::dkek::CheckValue;
use crate::{CardChannel, PinReference};

/// Checks that a clone can begin: nothing is touched, no PIN is tried.
///
/// Each target needs the source's DKEK, by the key check value, and a PIN that may be tried.
pub fn check<C: CardChannel>(
    source: &mut Access<C>,
    targets: &mut [Access<C>],
) -> Result<Vec<Result<()>>> {
    let ready = |access: &mut Access<C>| {
        let Access {
            card,
            serial,
            last_try,
            ..
        } = access;
        card.exclusively(|card| {
            card.select()?;
            may_try(card, serial, PinReference::User, *last_try)?;
            domain::check_value(card, serial)
        })
    };
    let there = ready(source)?;
    let fits = |target: &mut Access<C>| {
        let here = ready(target)?;
        if here == there {
            return Ok(());
        }
        Err(ProvisionError::OtherDkek {
            card: target.serial.clone(),
            here,
            there,
        })
    };
    Ok(targets.iter_mut().map(fits).collect())
}

/// The result of a clone.
#[derive(Debug)]
pub struct CloneResult {
    /// One for each target, in their order.
    pub targets: Vec<ReceiveResult>,
    /// Keys that did not leave the source, and why it ended early, if it did.
    pub failures: Vec<ProvisionError>,
}

impl CloneResult {
    /// True if every target holds every key.
    pub fn is_whole(&self) -> bool {
        let whole = |received: &ReceiveResult| received.failures.is_empty();
        self.failures.is_empty() && self.targets.iter().all(whole)
    }
}

/// Copies all keys and files of the source to all targets, each on a thread of its own: a key is installed while the
/// source wraps the next. Equal content is left alone, so another run completes the first.
///
/// [`check`] comes first; the DKEK is checked once more here.
pub fn run<C: CardChannel>(
    source: &mut Access<C>,
    targets: &mut [Access<C>],
    progress: &(dyn Fn(CardProgress<'_>) + Sync),
) -> Result<CloneResult> {
    let gate = PinTryGuard::default();
    let serial = source.serial.clone();
    source.logged_in_through(&gate, |card| {
        let there = domain::check_value(card, &serial)?;
        let files = card.enumerate()?;
        let wanted = receive::wanted(&files, true);
        let done = AtomicUsize::new(0);
        let total = wanted.len() * targets.len();
        let report = |card: &str| {
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(CardProgress { card, done, total });
        };
        thread::scope(|scope| {
            let (gate, report) = (&gate, &report);
            let spawn = |target| {
                let (sender, queue) = channel();
                let work = move || receive_all(target, gate, there, &queue, report);
                (sender, scope.spawn(work))
            };
            let (senders, threads): (Vec<_>, Vec<_>) = targets.iter_mut().map(spawn).unzip();
            let mut failures = Vec::new();
            for wanted in wanted {
                match wanted.take(card, &serial) {
                    Ok(item) => {
                        let item = Arc::new(item);
                        // A target that has ended does not listen any more, and says why itself.
                        for sender in &senders {
                            let _ = sender.send(Arc::clone(&item));
                        }
                    }
                    Err(error) => {
                        let end = error.ends_card();
                        failures.push(error);
                        if end {
                            break;
                        }
                    }
                }
            }
            drop(senders);
            let targets = threads.into_iter().filter_map(|thread| thread.join().ok());
            Ok(CloneResult {
                targets: targets.collect(),
                failures,
            })
        })
    })
}

/// One target: takes in what comes until the source has nothing more.
fn receive_all<C: CardChannel>(
    target: &mut Access<C>,
    gate: &PinTryGuard,
    there: CheckValue,
    queue: &Queue<Arc<TransferItem>>,
    report: &dyn Fn(&str),
) -> ReceiveResult {
    let serial = target.serial.clone();
    let mut gain = ReceiveResult::new(&serial);
    let outcome = target.logged_in_through(gate, |card| {
        domain::expect(card, &serial, there)?;
        let mut receiver = Receiver::new(card, &mut gain)?;
        for item in queue {
            receiver.take(&item)?;
            report(&serial);
        }
        Ok(())
    });
    gain.failures.extend(outcome.err());
    gain
}
