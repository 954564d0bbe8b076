//! How much of half-read frames each user makes a listener keep.

use std::collections::HashMap;
use std::sync::Arc;

use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, Result};

use crate::frame::MAX_FRAME;

/// Bytes that all connections of one user may keep waiting together: four of the longest frames.
const MOST: usize = 4 * MAX_FRAME;

/// A connection that keeps no more than this is not counted: that is nearly every one, always.
const FREE: usize = 64 << 10;

/// Bytes of half-read frames, by user id.
#[derive(Clone, Default)]
pub(crate) struct Halves(Arc<Mutex<HashMap<u32, usize>>>);

/// What one connection keeps, for as long as it lives.
pub(crate) struct Half {
    all: Halves,
    uid: u32,
    counted: usize,
}

impl Halves {
    pub fn of(&self, uid: u32) -> Half {
        Half {
            all: self.clone(),
            uid,
            counted: 0,
        }
    }
}

impl Half {
    /// So many bytes are kept now; an error when the user's connections together keep too many.
    pub fn keep(&mut self, bytes: usize) -> Result<()> {
        let bytes = if bytes > FREE { bytes } else { 0 };
        if bytes == self.counted {
            return Ok(());
        }
        let mut all = self.all.0.lock();
        let of_user = all.entry(self.uid).or_default();
        *of_user = *of_user - self.counted + bytes;
        self.counted = bytes;
        match *of_user {
            0 => drop(all.remove(&self.uid)),
            kept if kept > MOST => {
                let message = format!(
                    "user {}: {kept} bytes of unfinished frames; {MOST} are the most, over all \
                     connections",
                    self.uid
                );
                return Err(Error::pool(Kind::Busy, message));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        // Less is never refused.
        let _ = self.keep(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_refused_and_others_are_not() {
        let halves = Halves::default();
        let mut mine: Vec<_> = (0..5).map(|_| halves.of(7)).collect();
        for half in &mut mine[..4] {
            half.keep(MAX_FRAME).unwrap();
        }
        mine[4].keep(FREE).unwrap();
        assert_eq!(mine[4].keep(FREE + 1).unwrap_err().kind(), Kind::Busy);
        halves.of(8).keep(MAX_FRAME).unwrap();
        mine.truncate(3);
        halves.of(7).keep(MAX_FRAME).unwrap();
        drop(mine);
        assert!(halves.0.lock().is_empty());
    }
}
