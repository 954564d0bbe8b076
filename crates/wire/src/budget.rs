//! Memory budget of a user's connections. A connection that needs more than is left is paused until there is room.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Instant;

use hsmux_token::sync::Mutex;
use hsmux_token::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::frame::MAX_FRAME;

/// Bytes that all connections of one user may hold together: two of the longest calls, with answers as long.
const USER: usize = 4 * MAX_FRAME;

/// Bytes that all connections of one user may hold together in frames and answers of at most [`FREE`].
const SHORT: usize = USER;

/// Bytes that a connection gets without waiting, and its limit before C_Login: 64 KiB of data, 2 KiB around them.
pub(crate) const FREE: usize = 66 << 10;

/// A connection that can be paused.
pub(crate) trait Reader: Send + Sync {
    /// Stops reading.
    fn pause(&self);

    /// Reads again, and continues with the bytes that were read before.
    fn resume(&self);
}

/// Bytes held, by account.
#[derive(Clone, Default)]
pub(crate) struct Budgets {
    long: Arc<Mutex<HashMap<u32, Budget>>>,
    short: Arc<Mutex<HashMap<u32, Arc<AtomicUsize>>>>,
}

#[derive(Default)]
struct Budget {
    bytes: usize,
    /// Connections that wait for room, oldest first.
    waiting: VecDeque<Arc<HeldBytes>>,
}

/// Bytes that one connection holds, or waits for.
struct HeldBytes {
    bytes: AtomicUsize,
    granted: AtomicBool,
    since: Mutex<Instant>,
    reader: Option<Weak<dyn Reader>>,
}

/// The share of one connection, until it is dropped.
pub(crate) struct Charge {
    all: Budgets,
    account: u32,
    /// Bytes in short frames and answers: of this connection, and of all of the user. They take no lock.
    short: AtomicUsize,
    short_of_user: Arc<AtomicUsize>,
    /// Whether `hold` is set; read without its lock.
    counted: AtomicBool,
    hold: Mutex<Option<Arc<HeldBytes>>>,
}

/// Whether a connection may hold what it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    Granted,
    /// The reader is paused until there is room.
    Waits,
    /// There is no room, and the connection cannot wait because it holds bytes already.
    Full,
}

/// Connections that have room now.
#[must_use]
pub(crate) struct Granted(Vec<Arc<HeldBytes>>);

impl Granted {
    /// Resumes them. The caller holds no lock.
    pub fn resume(self) {
        let readers = self.0.iter().filter_map(|hold| hold.reader.as_ref());
        for reader in readers.filter_map(Weak::upgrade) {
            reader.resume();
        }
    }
}

impl Budgets {
    pub fn of(&self, account: u32) -> Charge {
        let mut short = self.short.lock();
        short.retain(|_, bytes| Arc::strong_count(bytes) > 1);
        let short_of_user = Arc::clone(short.entry(account).or_default());
        Charge {
            all: self.clone(),
            account,
            short: AtomicUsize::new(0),
            short_of_user,
            counted: AtomicBool::new(false),
            hold: Mutex::new(None),
        }
    }
}

impl Charge {
    /// Asks for this many bytes in place of those held. `read` bytes were read already, and are held while it waits.
    pub fn ask<R: Reader + 'static>(&self, bytes: usize, read: usize, reader: &Arc<R>) -> Room {
        let is_short = bytes <= FREE;
        if is_short {
            self.release().resume();
        }
        let short = if is_short {
            bytes
        } else if self.granted_since().is_some() {
            0
        } else {
            read.min(FREE)
        };
        if !self.count_short(short) {
            return Room::Full;
        }
        if is_short {
            return Room::Granted;
        }
        let room = self.ask_long(bytes, reader);
        if room == Room::Granted {
            self.set_short(0);
        }
        room
    }

    fn ask_long<R: Reader + 'static>(&self, bytes: usize, reader: &Arc<R>) -> Room {
        let mut hold = self.hold.lock();
        let mut all = self.all.long.lock();
        let budget = all.entry(self.account).or_default();
        if let Some(held) = &*hold {
            if held.granted.load(Ordering::Acquire) {
                return budget.change(held, bytes);
            }
            if held.bytes.load(Ordering::Relaxed) == bytes {
                // Another event may have ended the pause.
                reader.pause();
                return Room::Waits;
            }
            budget.waiting.retain(|other| !Arc::ptr_eq(other, held));
        }
        let fits = budget.waiting.is_empty() && budget.fits(bytes);
        let new = Arc::new(HeldBytes {
            bytes: AtomicUsize::new(bytes),
            granted: AtomicBool::new(fits),
            since: Mutex::new(Instant::now()),
            reader: Some(Arc::<R>::downgrade(reader)),
        });
        if fits {
            budget.bytes += bytes;
        } else {
            budget.waiting.push_back(Arc::clone(&new));
            // Under the lock, so that a resume comes after it.
            reader.pause();
        }
        *hold = Some(new);
        self.counted.store(true, Ordering::Release);
        if fits { Room::Granted } else { Room::Waits }
    }

    /// Holds this many bytes in place of those held, with or without room: they exist already.
    pub fn set(&self, bytes: usize) -> Granted {
        let is_short = bytes <= FREE;
        self.set_short(if is_short { bytes } else { 0 });
        if is_short {
            return self.release();
        }
        self.set_long(bytes)
    }

    /// Releases the bytes of a long frame or answer.
    fn release(&self) -> Granted {
        if self.counted.load(Ordering::Acquire) {
            self.set_long(0)
        } else {
            Granted(Vec::new())
        }
    }

    /// Counts this many bytes as short in place of those before, if the user has room for them.
    fn count_short(&self, bytes: usize) -> bool {
        let before = self.set_short(bytes);
        let fits = bytes <= before || self.short_of_user.load(Ordering::Relaxed) <= SHORT;
        if !fits {
            self.set_short(before);
        }
        fits
    }

    /// Answers the number before. Many threads change the total; each subtracts what it has added.
    fn set_short(&self, bytes: usize) -> usize {
        let before = self.short.swap(bytes, Ordering::Relaxed);
        if bytes > before {
            self.short_of_user
                .fetch_add(bytes - before, Ordering::Relaxed);
        } else if bytes < before {
            self.short_of_user
                .fetch_sub(before - bytes, Ordering::Relaxed);
        }
        before
    }

    fn set_long(&self, bytes: usize) -> Granted {
        let mut hold = self.hold.lock();
        let mut all = self.all.long.lock();
        let budget = all.entry(self.account).or_default();
        if let Some(held) = hold.take() {
            if held.granted.load(Ordering::Acquire) {
                budget.bytes -= held.bytes.load(Ordering::Relaxed);
            } else {
                budget.waiting.retain(|other| !Arc::ptr_eq(other, &held));
            }
        }
        if bytes > 0 {
            budget.bytes += bytes;
            *hold = Some(Arc::new(HeldBytes {
                bytes: AtomicUsize::new(bytes),
                granted: AtomicBool::new(true),
                since: Mutex::new(Instant::now()),
                reader: None,
            }));
        }
        self.counted.store(bytes > 0, Ordering::Release);
        let granted = budget.grant();
        if budget.bytes == 0 {
            all.remove(&self.account);
        }
        Granted(granted)
    }

    /// Whether the connection waits for room.
    pub fn waits(&self) -> bool {
        let hold = self.hold.lock();
        hold.as_ref()
            .is_some_and(|hold| !hold.granted.load(Ordering::Acquire))
    }

    /// When it got the bytes that it asked for.
    pub fn granted_since(&self) -> Option<Instant> {
        let hold = self.hold.lock();
        let granted = hold.as_ref()?;
        let since = *granted.since.lock();
        granted.granted.load(Ordering::Acquire).then_some(since)
    }
}

impl Budget {
    /// If nothing is held, any number fits.
    fn fits(&self, bytes: usize) -> bool {
        self.bytes == 0 || self.bytes + bytes <= USER
    }

    /// Changes the bytes that a connection holds. It never waits: one that waits while it holds bytes could wait for ever.
    fn change(&mut self, held: &HeldBytes, bytes: usize) -> Room {
        let before = held.bytes.load(Ordering::Relaxed);
        self.bytes -= before;
        let fits = bytes <= before || self.fits(bytes);
        let now = if fits { bytes } else { before };
        self.bytes += now;
        held.bytes.store(now, Ordering::Relaxed);
        if fits { Room::Granted } else { Room::Full }
    }

    /// Gives room to the connections that have waited longest.
    fn grant(&mut self) -> Vec<Arc<HeldBytes>> {
        let mut granted = Vec::new();
        while let Some(next) = self.waiting.front()
            && let bytes = next.bytes.load(Ordering::Relaxed)
            && self.fits(bytes)
        {
            self.bytes += bytes;
            *next.since.lock() = Instant::now();
            next.granted.store(true, Ordering::Release);
            granted.extend(self.waiting.pop_front());
        }
        granted
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0).resume();
    }
}

#[cfg(all(test, shuttle))]
mod interleavings;
#[cfg(test)]
mod tests;
