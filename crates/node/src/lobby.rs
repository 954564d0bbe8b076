//! Connections of which nobody knows whose they are: where one more has no place, the one that has been there
//! longest goes. A host is done within milliseconds, so that strangers keep none out, however many they are.

use std::sync::Arc;

use hsmux_token::Slots;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Places of a lobby. One that has said something costs a few dozen kilobytes.
const PLACES: usize = 512;

/// All that wait to be known: nobody knows their users, so they count as one.
#[derive(Default)]
pub struct Lobby(Mutex<Slots<(), Arc<Notify>>>);

/// The place of one of them.
pub struct Place {
    lobby: Arc<Lobby>,
    number: u64,
    leave: Arc<Notify>,
}

impl Lobby {
    /// Takes one in.
    pub fn enter(self: &Arc<Self>) -> Place {
        let mut waiting = self.0.lock();
        if waiting.len() == PLACES
            && let Some(leave) = waiting.evict((), |_| true)
        {
            leave.notify_one();
        }
        let leave = Arc::new(Notify::new());
        let number = waiting.insert((), Arc::clone(&leave));
        drop(waiting);
        Place {
            lobby: Arc::clone(self),
            number,
            leave,
        }
    }
}

impl Place {
    /// Comes when another one needs the place.
    pub async fn needed(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lobby.0.lock().remove((), self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn has_to_go(place: &Place) -> bool {
        let needed = pin!(place.needed());
        needed
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn who_has_been_there_longest_makes_room() {
        let lobby = Arc::new(Lobby::default());
        let mut places: Vec<_> = (0..PLACES).map(|_| lobby.enter()).collect();
        assert!(!places.iter().any(has_to_go));
        // Who is known by now has left.
        drop(places.remove(0));
        places.push(lobby.enter());
        assert!(!places.iter().any(has_to_go));
        places.push(lobby.enter());
        let gone: Vec<_> = places.iter().map(has_to_go).collect();
        assert!(gone[0] && !gone[1..].contains(&true));
        // It leaves when it hears that: nobody else has to go for it.
        drop(places.remove(0));
        assert_eq!(lobby.0.lock().len(), PLACES);
    }
}
