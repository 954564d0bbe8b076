//! Recording of events, on a trail of this process or of another one.

use hsmux_token::Result;

use crate::event::Event;
use crate::trail::Trail;

/// Records events. [`Trail`] has the details.
pub trait Recorder: Send + Sync {
    /// True if each use of a key is to be recorded. Cheap: ask before making an [`Event`].
    fn wants_uses(&self) -> bool;

    /// Allows an act that is to be recorded, or refuses it.
    fn admit(&self) -> Result<()>;

    /// Records an event. Never waits.
    fn record(&self, event: Event);

    /// Records an act that is about to be done; blocks until the line is on disk. After an error the act must not be
    /// done.
    fn announce(&self, event: Event) -> Result<()>;

    /// Records a completed act; blocks until the line is on disk.
    fn commit(&self, event: Event) -> Result<()>;
}

impl Recorder for Trail {
    fn wants_uses(&self) -> bool {
        Self::wants_uses(self)
    }

    fn admit(&self) -> Result<()> {
        Self::admit(self)
    }

    fn record(&self, event: Event) {
        Self::record(self, event);
    }

    fn announce(&self, event: Event) -> Result<()> {
        Self::announce(self, event)
    }

    fn commit(&self, event: Event) -> Result<()> {
        Self::commit(self, event)
    }
}
