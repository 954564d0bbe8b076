//! Resources of a connection: a slot, a slot for its handshake while that is under way, and a file.
//!
//! If one of them is missing, an idle connection of the source with the most connections is closed.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::activity::Activity;
use crate::files;
use crate::house::{Door, House};
use crate::metrics::{Closed, Refused};
use crate::source::{Counted, SourceSlots};

/// Connections that may wait for another one to be closed.
const MOST_WAITING: usize = 256;

/// How long each waits at most.
const WITHIN: Duration = Duration::from_secs(2);

/// Resources that a connection has taken when it was accepted.
pub struct Reservation {
    place: Option<OwnedSemaphorePermit>,
    handshake: Option<OwnedSemaphorePermit>,
    file: files::Held,
    /// The resource that was missing, and a slot among those that wait.
    missing: Option<(Refused, OwnedSemaphorePermit)>,
}

/// Resources that it holds while it is served.
pub struct ConnectionSlot {
    _place: OwnedSemaphorePermit,
    _file: files::Held,
    _counted: Counted,
}

/// Further resources of its handshake.
pub struct HandshakeSlot {
    _one: OwnedSemaphorePermit,
    _counted: Counted,
}

/// Slots of connections that wait. Each takes one of the `files` that are meant for backends.
pub fn waiting(files: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MOST_WAITING.min(files / 4).max(1)))
}

impl Reservation {
    /// Takes what there is, without waiting. An error: too many wait already.
    pub fn new(house: &House, door: Door) -> Result<Self, Refused> {
        let place = take(&house.connections);
        let handshake = match door {
            Door::Tls => take(&house.handshakes),
            Door::Plain => None,
        };
        let file = house.files.client();
        let why = if place.is_none() {
            Some(Refused::Connections)
        } else if door == Door::Tls && handshake.is_none() {
            Some(Refused::Handshakes)
        } else if file.is_none() {
            Some(Refused::Files)
        } else {
            None
        };
        let missing = match why {
            Some(why) => Some((why, take(&house.waiting).ok_or(why)?)),
            None => None,
        };
        let file = file.or_else(|| house.files.behind());
        Ok(Self {
            place,
            handshake,
            file: file.ok_or(Refused::Files)?,
            missing,
        })
    }

    /// Takes the rest for a connection of this client.
    pub async fn complete(
        self,
        house: &House,
        client: IpAddr,
        activity: &Arc<Activity>,
        door: Door,
    ) -> Result<(ConnectionSlot, Option<HandshakeSlot>), Refused> {
        let missing = self.missing.as_ref().map(|(why, _)| *why);
        let count = |sources: &Arc<SourceSlots>| {
            let counted = sources.count(client, activity);
            counted.ok_or(missing.unwrap_or(Refused::Source))
        };
        let counted = count(&house.source_connections)?;
        let shakes = match door {
            Door::Tls => Some(count(&house.source_handshakes)?),
            Door::Plain => None,
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
            house.metrics.closed(Closed::Idle);
        }
        let _waiting = self.missing;
        let place = wait(self.place, &house.connections, Refused::Connections);
        let place = place.await?;
        let handshake = match shakes {
            Some(counted) => Some(HandshakeSlot {
                _one: wait(self.handshake, &house.handshakes, Refused::Handshakes).await?,
                _counted: counted,
            }),
            None => None,
        };
        let slot = ConnectionSlot {
            _place: place,
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
    why: Refused,
) -> Result<OwnedSemaphorePermit, Refused> {
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
    fn so_many_wait() {
        let most = |files| waiting(files).available_permits();
        assert_eq!([0, 40, 1 << 20].map(most), [1, 10, 256]);
    }

    #[tokio::test]
    async fn each_waits_no_longer_than_it_may() {
        let slots = Arc::new(Semaphore::new(1));
        let taken = wait(None, &slots, Refused::Connections).await;
        let begun = Instant::now();
        let refused = wait(None, &slots, Refused::Connections).await;
        assert!(matches!(refused, Err(Refused::Connections)));
        assert!((WITHIN..2 * WITHIN).contains(&begun.elapsed()));
        drop(taken);
        assert!(wait(None, &slots, Refused::Connections).await.is_ok());
    }
}
