//! Resources of a connection: a slot, a slot for its handshake while that is under way, and a file.
//!
//! If one of them is missing, an idle connection of the source with the most connections is closed.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::acceptor::ListenerKind;
use crate::activity::Activity;
use crate::app_state::AppState;
use crate::file_budget::FilePermit;
use crate::metrics::{CloseReason, RefusalReason};
use crate::source::{SourceSlot, SourceSlots};

/// Connections that may wait for another one to be closed.
const MOST_WAITING: usize = 256;

/// How long each waits at most.
const WITHIN: Duration = Duration::from_secs(2);

/// Resources that a connection has taken when it was accepted.
pub struct Reservation {
    connection: Option<OwnedSemaphorePermit>,
    handshake: Option<OwnedSemaphorePermit>,
    file: FilePermit,
    /// The resource that was missing, and a slot among those that wait.
    missing: Option<(RefusalReason, OwnedSemaphorePermit)>,
}

/// Resources that it holds while it is served.
pub struct ConnectionSlot {
    _connection: OwnedSemaphorePermit,
    _file: FilePermit,
    _counted: SourceSlot,
}

/// Further resources of its handshake.
pub struct HandshakeSlot {
    _handshake: OwnedSemaphorePermit,
    _counted: SourceSlot,
}

/// Slots of connections that wait. Each takes one of the `files` that are meant for backends.
pub fn waiting_slots(files: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MOST_WAITING.min(files / 4).max(1)))
}

impl Reservation {
    /// Takes what there is, without waiting. An error: too many wait already.
    pub fn new(app: &AppState, kind: ListenerKind) -> Result<Self, RefusalReason> {
        let connection = take(&app.connections);
        let handshake = match kind {
            ListenerKind::Tls => take(&app.handshakes),
            ListenerKind::Plain => None,
        };
        let file = app.files.for_client();
        let why = if connection.is_none() {
            Some(RefusalReason::Connections)
        } else if kind == ListenerKind::Tls && handshake.is_none() {
            Some(RefusalReason::Handshakes)
        } else if file.is_none() {
            Some(RefusalReason::Files)
        } else {
            None
        };
        let missing = match why {
            Some(why) => Some((why, take(&app.waiting).ok_or(why)?)),
            None => None,
        };
        let file = file.or_else(|| app.files.for_backend());
        Ok(Self {
            connection,
            handshake,
            file: file.ok_or(RefusalReason::Files)?,
            missing,
        })
    }

    /// Takes the rest for a connection of this client.
    pub async fn complete(
        self,
        app: &AppState,
        client: IpAddr,
        activity: &Arc<Activity>,
        kind: ListenerKind,
    ) -> Result<(ConnectionSlot, Option<HandshakeSlot>), RefusalReason> {
        let missing = self.missing.as_ref().map(|(why, _)| *why);
        let count = |sources: &Arc<SourceSlots>| {
            let counted = sources.count(client, activity);
            counted.ok_or(missing.unwrap_or(RefusalReason::Source))
        };
        let counted = count(&app.source_connections)?;
        let shakes = match kind {
            ListenerKind::Tls => Some(count(&app.source_handshakes)?),
            ListenerKind::Plain => None,
        };
        if let Some(why) = missing {
            // Closing a handshake frees both slots.
            let crowded = match &shakes {
                Some(shakes) if self.handshake.is_none() => shakes,
                _ => &counted,
            };
            if !crowded.evict_another() {
                return Err(why);
            }
            app.metrics.closed(CloseReason::Idle);
        }
        let _waiting = self.missing;
        let connection = wait(
            self.connection,
            &app.connections,
            RefusalReason::Connections,
        );
        let connection = connection.await?;
        let handshake = match shakes {
            Some(counted) => Some(HandshakeSlot {
                _handshake: wait(self.handshake, &app.handshakes, RefusalReason::Handshakes)
                    .await?,
                _counted: counted,
            }),
            None => None,
        };
        let slot = ConnectionSlot {
            _connection: connection,
            _file: self.file,
            _counted: counted,
        };
        Ok((slot, handshake))
    }
}

fn take(from: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(from).try_acquire_owned().ok()
}

async fn wait(
    taken: Option<OwnedSemaphorePermit>,
    from: &Arc<Semaphore>,
    why: RefusalReason,
) -> Result<OwnedSemaphorePermit, RefusalReason> {
    if let Some(taken) = taken {
        return Ok(taken);
    }
    let freed = timeout(WITHIN, Arc::clone(from).acquire_owned()).await;
    freed.ok().and_then(Result::ok).ok_or(why)
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn waiting_connections_are_limited() {
        let most = |files| waiting_slots(files).available_permits();
        assert_eq!([0, 40, 1 << 20].map(most), [1, 10, 256]);
    }

    #[tokio::test]
    async fn a_wait_has_a_time_limit() {
        let slots = Arc::new(Semaphore::new(1));
        let taken = wait(None, &slots, RefusalReason::Connections).await;
        let begun = Instant::now();
        let refused = wait(None, &slots, RefusalReason::Connections).await;
        assert!(matches!(refused, Err(RefusalReason::Connections)));
        assert!((WITHIN..2 * WITHIN).contains(&begun.elapsed()));
        drop(taken);
        assert!(wait(None, &slots, RefusalReason::Connections).await.is_ok());
    }
}
