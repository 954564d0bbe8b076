//! The simulation of this thread, where the code asks for randomness and the time, and writes its journal.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use super::world::ChangeWorld;

thread_local! {
    static HERE: RefCell<Option<Arc<ChangeWorld>>> = const { RefCell::new(None) };
}

/// This thread runs a simulation, until the answer is dropped.
pub(super) fn enter(world: &Arc<ChangeWorld>) -> EnteredWorld {
    HERE.set(Some(Arc::clone(world)));
    EnteredWorld
}

pub(super) struct EnteredWorld;

impl Drop for EnteredWorld {
    fn drop(&mut self) {
        HERE.set(None);
    }
}

fn here() -> Option<Arc<ChangeWorld>> {
    HERE.with_borrow(Clone::clone)
}

/// Random bytes; false outside of a simulation.
pub(crate) fn fill(bytes: &mut [u8]) -> bool {
    here().is_some_and(|world| {
        world.state().random.fill(bytes);
        true
    })
}

/// The time, in seconds after 1970.
pub(crate) fn seconds() -> Option<u64> {
    here().map(|world| world.state().now)
}

/// Before a line is added to the journal, or replaces all lines.
pub(crate) fn writes(line: &[u8]) -> io::Result<()> {
    here().map_or(Ok(()), |world| world.writes(line))
}

/// The journal is this long now. What is not synced may be lost.
pub(crate) fn written(len: u64, is_synced: bool) {
    if let Some(world) = here() {
        world.written(len, is_synced);
    }
}
