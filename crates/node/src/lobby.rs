//! Connections of which nobody knows whose they are: where one more has no place, the one that has been there
//! longest goes. A host is done within milliseconds, so that strangers keep none out, however many they are.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Places of a lobby. One that has said something costs a few dozen kilobytes.
const PLACES: usize = 512;

/// All that wait to be known.
#[derive(Default)]
pub struct Lobby(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// In the order in which they came, which is that of their numbers.
    all: VecDeque<(u64, Arc<Notify>)>,
    next: u64,
}

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
        if waiting.all.len() == PLACES
            && let Some((_, leave)) = waiting.all.pop_front()
        {
            leave.notify_one();
        }
        let number = waiting.next;
        waiting.next += 1;
        let leave = Arc::new(Notify::new());
        waiting.all.push_back((number, Arc::clone(&leave)));
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
        let all = &mut self.lobby.0.lock().all;
        if let Ok(at) = all.binary_search_by_key(&self.number, |(number, _)| *number) {
            all.remove(at);
        }
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
        assert_eq!(lobby.0.lock().all.len(), PLACES);
    }
}
