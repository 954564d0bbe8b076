//! How much of half-read frames each user makes a listener keep: a connection whose frame would be too much is
//! not read until there is room.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use hsmux_token::sync::Mutex;

use crate::frame::MAX_FRAME;

/// Bytes that all connections of one user may keep waiting together: four of the longest frames.
const MOST: usize = 4 * MAX_FRAME;

/// A frame that is no longer than this is not counted: that is nearly every one, always.
const FREE: usize = 64 << 10;

/// A connection that can be left unread.
pub(crate) trait Reader: Send + Sync {
    /// It is not read from now on.
    fn pause(&self);

    /// It is read again.
    fn resume(&self);
}

/// Half-read frames, by user id.
#[derive(Clone, Default)]
pub(crate) struct Halves(Arc<Mutex<HashMap<u32, Kept>>>);

#[derive(Default)]
struct Kept {
    bytes: usize,
    /// Those for which there is no room yet, in the order in which they came.
    waiting: VecDeque<Arc<Place>>,
}

/// Room for the whole of a frame: what was begun can always be read to its end.
struct Place {
    frame: usize,
    granted: AtomicBool,
    /// When a part of it came last, or it was granted.
    moved: Mutex<Instant>,
    reader: Weak<dyn Reader>,
}

/// What one connection keeps, for as long as it lives.
pub(crate) struct Half {
    all: Halves,
    uid: u32,
    place: Option<Arc<Place>>,
}

impl Halves {
    pub fn of(&self, uid: u32) -> Half {
        Half {
            all: self.clone(),
            uid,
            place: None,
        }
    }
}

impl Half {
    /// For a frame of so many bytes, of which a part has come, in place of the last one. Without room the reader
    /// is paused until there is some, and `false` is answered.
    pub fn make_room<R: Reader + 'static>(&mut self, frame: usize, reader: &Arc<R>) -> bool {
        let frame = if frame > FREE { frame } else { 0 };
        match &self.place {
            None if frame == 0 => true,
            Some(place) if place.frame == frame => {
                *place.moved.lock() = Instant::now();
                self.all.has(place, &**reader)
            }
            _ => {
                self.give_back();
                frame == 0 || self.ask_for(frame, reader)
            }
        }
    }

    /// Since when nothing has come of a frame that has room, if there is one.
    pub fn stands_still_since(&self) -> Option<Instant> {
        let place = self.place.as_ref()?;
        let granted = place.granted.load(Ordering::Acquire);
        granted.then(|| *place.moved.lock())
    }

    fn ask_for<R: Reader + 'static>(&mut self, frame: usize, reader: &Arc<R>) -> bool {
        let mut all = self.all.0.lock();
        let kept = all.entry(self.uid).or_default();
        let fits = kept.waiting.is_empty() && kept.bytes + frame <= MOST;
        let place = Arc::new(Place {
            frame,
            granted: AtomicBool::new(fits),
            moved: Mutex::new(Instant::now()),
            reader: Arc::<R>::downgrade(reader),
        });
        if fits {
            kept.bytes += frame;
        } else {
            kept.waiting.push_back(Arc::clone(&place));
            // Under the lock: it is resumed after that.
            reader.pause();
        }
        self.place = Some(place);
        fits
    }

    fn give_back(&mut self) {
        let Some(place) = self.place.take() else {
            return;
        };
        let mut all = self.all.0.lock();
        let Some(kept) = all.get_mut(&self.uid) else {
            return;
        };
        if place.granted.load(Ordering::Acquire) {
            kept.bytes -= place.frame;
        } else {
            kept.waiting.retain(|other| !Arc::ptr_eq(other, &place));
        }
        let granted = kept.grant();
        if kept.bytes == 0 {
            all.remove(&self.uid);
        }
        // What is dropped here may give something back itself.
        drop(all);
        for reader in granted.iter().filter_map(|place| place.reader.upgrade()) {
            reader.resume();
        }
    }
}

impl Halves {
    /// Whether the place was granted; if not, its reader is paused once more, which something else may have ended.
    fn has(&self, place: &Place, reader: &dyn Reader) -> bool {
        if place.granted.load(Ordering::Acquire) {
            return true;
        }
        let _all = self.0.lock();
        let granted = place.granted.load(Ordering::Acquire);
        if !granted {
            reader.pause();
        }
        granted
    }
}

impl Kept {
    /// Gives room to those that have waited longest; one fits always where nothing is kept.
    fn grant(&mut self) -> Vec<Arc<Place>> {
        let mut granted = Vec::new();
        while let Some(next) = self.waiting.front()
            && self.bytes + next.frame <= MOST
        {
            self.bytes += next.frame;
            *next.moved.lock() = Instant::now();
            next.granted.store(true, Ordering::Release);
            granted.extend(self.waiting.pop_front());
        }
        granted
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Connection {
        paused: AtomicBool,
    }

    impl Reader for Connection {
        fn pause(&self) {
            self.paused.store(true, Ordering::Relaxed);
        }

        fn resume(&self) {
            self.paused.store(false, Ordering::Relaxed);
        }
    }

    /// A connection of this user.
    fn connection(halves: &Halves, uid: u32) -> (Half, Arc<Connection>) {
        (halves.of(uid), Arc::default())
    }

    fn is_paused((_, reader): &(Half, Arc<Connection>)) -> bool {
        reader.paused.load(Ordering::Relaxed)
    }

    fn keeps((half, reader): &mut (Half, Arc<Connection>), frame: usize) -> bool {
        half.make_room(frame, reader)
    }

    #[test]
    fn a_user_waits_for_room_and_others_do_not() {
        let halves = Halves::default();
        let mut mine: Vec<_> = (0..6).map(|_| connection(&halves, 7)).collect();
        for connection in &mut mine[..4] {
            assert!(keeps(connection, MAX_FRAME));
        }
        assert!(keeps(&mut mine[4], FREE));
        for waiting in [4, 5] {
            assert!(!keeps(&mut mine[waiting], MAX_FRAME));
            assert!(is_paused(&mine[waiting]));
        }
        assert!(keeps(&mut connection(&halves, 8), MAX_FRAME));
        let stands = |(half, _): &(Half, Arc<Connection>)| half.stands_still_since().is_some();
        assert!(stands(&mine[0]) && !stands(&mine[5]));
        // Whose frame is whole leaves the room to the first that waits.
        assert!(keeps(&mut mine[0], 0));
        assert!(!is_paused(&mine[4]) && keeps(&mut mine[4], MAX_FRAME));
        assert!(is_paused(&mine[5]) && !keeps(&mut mine[5], MAX_FRAME));
        // So does one that has ended.
        drop(mine.remove(1));
        assert!(!is_paused(&mine[4]) && keeps(&mut mine[4], MAX_FRAME));
        drop(mine);
        assert!(halves.0.lock().is_empty());
    }

    #[test]
    fn who_has_ended_does_not_wait_in_front_of_others() {
        let halves = Halves::default();
        let mut mine: Vec<_> = (0..7).map(|_| connection(&halves, 7)).collect();
        for connection in &mut mine {
            keeps(connection, MAX_FRAME);
        }
        drop(mine.remove(4));
        drop(mine.remove(0));
        assert!(!is_paused(&mine[3]) && is_paused(&mine[4]));
        // Nor one whose room was granted, and never used.
        drop(mine.remove(3));
        assert!(!is_paused(&mine[3]));
    }

    #[test]
    fn what_is_read_nevertheless_is_paused_again() {
        let halves = Halves::default();
        let mut mine: Vec<_> = (0..5).map(|_| connection(&halves, 7)).collect();
        for connection in &mut mine {
            keeps(connection, MAX_FRAME);
        }
        mine[4].1.resume();
        assert!(!keeps(&mut mine[4], MAX_FRAME) && is_paused(&mine[4]));
    }
}
