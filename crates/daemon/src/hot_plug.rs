//! Watches cards in readers. A member whose card is removed leaves the pool at once. A member whose card is back is
//! tried at once.
//!
//! One thread waits in PC/SC without a time-out, so it costs nothing while nothing changes. It does so only if a
//! member's token is in a slot that it can leave. If pcscd is absent or ends, it is looked for again, with growing
//! pauses.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hsmux_pool::one_round;
use hsmux_smartcard::ChannelError;
use hsmux_smartcard::pcsc::{CardState, Reader, ReaderWatch, WatchCanceller};
use hsmux_token::{Error, Kind, Result};
use parking_lot::Mutex;

use crate::daemon::Running;

/// The first pause between two attempts to reach pcscd. It is doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// How long the end waits for the thread. Only a pcscd that hangs keeps the thread longer.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// The length of slotDescription (PKCS#11 3.0, section 3.2): longer names of readers are cut.
const SLOT_NAME: usize = 64;

/// A member that sets this variable uses another pcscd.
const OTHER_PCSCD: &str = "PCSCLITE_CSOCK_NAME";

/// The thread. It ends with this.
pub(crate) struct HotPlug {
    ending: Arc<WatchEnd>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct WatchEnd {
    begun: AtomicBool,
    waiting: Mutex<Option<WatchCanceller>>,
}

impl HotPlug {
    /// Watches for the members of this daemon.
    pub fn start(running: &Arc<Running>) -> Result<Self> {
        let ending = Arc::new(WatchEnd::default());
        let watcher = Watcher {
            running: Arc::downgrade(running),
            ending: Arc::clone(&ending),
            before: None,
            pause: FIRST_PAUSE,
        };
        let started = thread::Builder::new()
            .name("hsmux-readers".into())
            .spawn(move || watcher.run());
        let thread = started.map_err(|error| {
            let message = format!("no thread to watch readers: {error}");
            Error::pool(Kind::Environment, message)
        })?;
        Ok(Self {
            ending,
            thread: Some(thread),
        })
    }
}

impl Drop for HotPlug {
    fn drop(&mut self) {
        self.ending.begun.store(true, Ordering::Release);
        let Some(watcher) = self.thread.take() else {
            return;
        };
        let ending = Arc::clone(&self.ending);
        // On a thread, because SCardCancel also waits for pcscd.
        let canceller = thread::Builder::new().name("hsmux-readers-end".into());
        let Ok(canceller) = canceller.spawn(move || ending.cancel(&watcher)) else {
            return;
        };
        let until = Instant::now() + ENDS_WITHIN;
        while !canceller.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl WatchEnd {
    /// Ends each wait of the thread. Cancelling ends one only once it has begun.
    fn cancel(&self, watcher: &JoinHandle<()>) {
        while !watcher.is_finished() {
            if let Some(waiting) = &*self.waiting.lock() {
                let _ = waiting.cancel();
            }
            watcher.thread().unpark();
            thread::sleep(Duration::from_millis(2));
        }
    }
}

struct Watcher {
    running: Weak<Running>,
    ending: Arc<WatchEnd>,
    /// The readers as they were at the last look; `None` before the first, and after pcscd has gone.
    before: Option<Vec<Reader>>,
    pause: Duration,
}

impl Watcher {
    fn run(mut self) {
        let mut said = None;
        while self.is_wanted() {
            let look = || {
                ReaderWatch::new()
                    .and_then(|watch| self.follow(watch))
                    .err()
            };
            let error = one_round("the readers' watch", look).flatten();
            // Released without the lock: that may take long.
            let last = self.ending.waiting.lock().take();
            drop(last);
            if error.is_some() && error != said {
                let error = error.as_ref().map(ToString::to_string).unwrap_or_default();
                tracing::info!("no readers are watched: {error}");
            }
            said = error;
            thread::park_timeout(self.pause);
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
    }

    /// Waits until a member may be a card. `false` if the daemon ends.
    fn is_wanted(&self) -> bool {
        let pool = self
            .running
            .upgrade()
            .map(|running| Arc::clone(&running.shared.pool));
        let wanted = pool.is_some_and(|pool| pool.wait_for_slots());
        wanted && !self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.ending.begun.load(Ordering::Acquire)
    }

    /// Tells the pool of changes, until the daemon or pcscd ends.
    fn follow(&mut self, mut watch: ReaderWatch) -> Result<(), ChannelError> {
        *self.ending.waiting.lock() = Some(watch.canceller());
        while !self.has_ended() {
            match watch.wait(None) {
                Ok(Some(now)) => {
                    self.pause = FIRST_PAUSE;
                    self.tell(now, |reader| ChannelError::Removed {
                        reader: reader.to_owned(),
                    });
                }
                Ok(None) => {}
                Err(error) => {
                    self.tell(Vec::new(), |_| error.clone());
                    self.before = None;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn tell(&mut self, now: Vec<Reader>, why: impl Fn(&str) -> ChannelError) {
        let Some(running) = self.running.upgrade() else {
            return;
        };
        let (pool, config) = (&running.shared.pool, running.config());
        let ours = |member: &str| {
            let member = config.member(member);
            member.is_none_or(|member| member.env.iter().all(|(name, _)| name != OTHER_PCSCD))
        };
        let before = self.before.take();
        let left = match &before {
            Some(before) => gone(before, &now),
            None => empty(&now),
        };
        for reader in left {
            if before.is_some() {
                tracing::info!(reader, "a card has gone");
            }
            pool.token_left(&slot(reader), &why(reader).to_string(), ours);
        }
        for reader in gone(&now, &before.unwrap_or_default()) {
            tracing::info!(reader, "a card has come");
            pool.token_came(&slot(reader));
        }
        self.before = Some(now);
    }
}

/// The readers without a card. At the first look, a member's card may have been removed since the member served.
/// Readers whose slots have the same name count as one.
fn empty(now: &[Reader]) -> Vec<&str> {
    let is_empty = |reader: &&Reader| {
        let mut same = now
            .iter()
            .filter(|other| slot(&other.name) == slot(&reader.name));
        same.all(|other| other.card == CardState::Empty)
    };
    let empty = now.iter().filter(is_empty);
    empty.map(|reader| reader.name.as_str()).collect()
}

/// The readers whose card of `then` is no longer there `now`. With the arguments swapped: the readers that have got a
/// card.
fn gone<'a>(then: &'a [Reader], now: &[Reader]) -> Vec<&'a str> {
    let card = |reader: &&Reader| matches!(reader.card, CardState::Present { .. });
    let stays = |reader: &&Reader| {
        let same = |other: &Reader| (&other.name, other.events) == (&reader.name, reader.events);
        now.iter().filter(card).any(same)
    };
    let gone = then.iter().filter(card).filter(|reader| !stays(reader));
    gone.map(|reader| reader.name.as_str()).collect()
}

/// The name of the PKCS#11 slot of this reader.
pub(crate) fn slot(reader: &str) -> Cow<'_, str> {
    let name = String::from_utf8_lossy(&reader.as_bytes()[..reader.len().min(SLOT_NAME)]);
    match name {
        Cow::Borrowed(name) => name.trim_end().into(),
        Cow::Owned(name) => name.trim_end().to_owned().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(name: &str, present: bool, events: u32) -> Reader {
        let card = if present {
            CardState::Present {
                atr: vec![0x3B],
                in_use: events % 2 == 1,
                exclusive: false,
            }
        } else {
            CardState::Empty
        };
        let name = name.to_owned();
        Reader { name, card, events }
    }

    #[test]
    fn what_has_changed_between_two_looks() {
        let before = [
            reader("stays", true, 1),
            reader("pulled", true, 1),
            reader("swapped", true, 1),
            reader("filled", false, 0),
            reader("stick", true, 1),
            reader("empty", false, 2),
        ];
        let now = [
            reader("stays", true, 1),
            reader("pulled", false, 2),
            reader("swapped", true, 3),
            reader("filled", true, 1),
            reader("empty", false, 2),
            reader("new", true, 1),
        ];
        assert_eq!(gone(&before, &now), ["pulled", "swapped", "stick"]);
        assert_eq!(gone(&now, &before), ["swapped", "filled", "new"]);
        assert!(gone(&now, &now).is_empty());
        assert_eq!(empty(&now), ["pulled", "empty"]);
        let twins = ["contact", "contactless"].map(|end| format!("{}{end}", "x".repeat(64)));
        let [contact, contactless] = &twins;
        let now = [reader(contact, true, 1), reader(contactless, false, 0)];
        assert!(empty(&now).is_empty(), "one slot name for both");
    }

    #[test]
    fn a_slot_has_the_first_64_bytes_of_a_reader() {
        assert_eq!(slot("Virtual PCD 00 00"), "Virtual PCD 00 00");
        let long = format!("{} 00 00", "x".repeat(63));
        assert_eq!(slot(&long), "x".repeat(63));
    }
}
