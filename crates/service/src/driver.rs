//! Reads the daemon's answers on the threads that serve clients.

use std::io;
use std::sync::Arc;

use hsmux_wire::{Reactor, TurnRoom};
use tokio::io::unix::AsyncFd;
use tokio::time::sleep_until;

/// Turns the reactor whenever something is ready or due, until the runtime ends.
pub async fn drive(reactor: Arc<Reactor>) -> io::Result<()> {
    let descriptor = reactor.descriptor().try_clone_to_owned()?;
    // Deprecated for types that may change their descriptor; an owned descriptor does not.
    #[allow(deprecated)]
    let watched = AsyncFd::new(descriptor)?;
    let mut room = TurnRoom::default();
    loop {
        let due = reactor.turn(&mut room);
        let passed = async {
            match due {
                Some(due) => sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Cleared before the next turn: what becomes ready during it is not missed.
            ready = watched.readable() => ready?.clear_ready(),
            () = passed => {}
        }
    }
}
