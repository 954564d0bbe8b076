//! Memory for the bodies of requests, the items of their batches, and their answers until clients have taken them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An answer of at most so many bytes is charged and never refused: the act that it reports may be done.
const SHORT: usize = 4 << 10;

/// The memory of all requests together.
pub struct RequestMemory {
    most: usize,
    taken: AtomicUsize,
}

/// The memory of one client's requests.
#[derive(Default)]
pub struct ClientMemory {
    taken: AtomicUsize,
}

/// The memory of one request, until this is dropped.
pub struct MemoryCharge {
    memory: Arc<RequestMemory>,
    client: Arc<ClientMemory>,
    /// The client's share.
    part: usize,
    held: AtomicUsize,
}

/// The holder of the memory that a request would need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryFull {
    /// Other requests of its client.
    Client,
    /// Requests of all.
    All,
}

impl RequestMemory {
    /// Memory of so many bytes.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: AtomicUsize::new(0),
        })
    }

    /// Bytes that are held now.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }
}

impl MemoryCharge {
    /// A new request holds nothing. Its body has at most `max_body` bytes.
    pub fn new(memory: &Arc<RequestMemory>, client: &Arc<ClientMemory>, max_body: usize) -> Self {
        Self {
            memory: Arc::clone(memory),
            client: Arc::clone(client),
            part: max_body.max(memory.most / 2),
            held: AtomicUsize::new(0),
        }
    }

    /// Takes more memory, unless others hold all of it, or its client half of it. A request alone always gets what it
    /// needs. A refused request gives back all that it holds: of two that do not fit together, one fits.
    pub fn grow(&self, bytes: usize) -> Result<(), MemoryFull> {
        let own = self.held.load(Ordering::Acquire);
        let take = |of: &AtomicUsize, most: usize| {
            let more = |taken: usize| {
                let after = taken.checked_add(bytes)?;
                (after <= most || taken <= own).then_some(after)
            };
            of.fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
                .is_ok()
        };
        let full = if !take(&self.client.taken, self.part) {
            MemoryFull::Client
        } else if !take(&self.memory.taken, self.memory.most) {
            self.client.taken.fetch_sub(bytes, Ordering::AcqRel);
            MemoryFull::All
        } else {
            self.held.fetch_add(bytes, Ordering::AcqRel);
            return Ok(());
        };
        self.shrink_to(0);
        Err(full)
    }

    /// Holds an answer of so many bytes, and nothing else.
    pub fn answer(&self, bytes: usize) -> Result<(), MemoryFull> {
        self.shrink_to(bytes);
        let more = bytes - self.held.load(Ordering::Acquire);
        if more == 0 || bytes > SHORT {
            return self.grow(more);
        }
        for taken in [&self.held, &self.client.taken, &self.memory.taken] {
            taken.fetch_add(more, Ordering::AcqRel);
        }
        Ok(())
    }

    fn shrink_to(&self, bytes: usize) {
        let held = self.held.fetch_min(bytes, Ordering::AcqRel);
        let less = held.saturating_sub(bytes);
        self.memory.taken.fetch_sub(less, Ordering::AcqRel);
        self.client.taken.fetch_sub(less, Ordering::AcqRel);
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_takes_the_place_of_its_body() {
        let (all, client) = (RequestMemory::new(40 << 10), Arc::default());
        let charge = MemoryCharge::new(&all, &client, 0);
        charge.grow(9000).unwrap();
        charge.answer(100).unwrap();
        assert_eq!(all.taken(), 100);
        charge.answer(9000).unwrap();
        assert_eq!(all.taken(), 9000);
        drop(charge);
        assert_eq!((all.taken(), client.taken.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn an_answer_has_no_room_beside_those_that_wait() {
        let all = RequestMemory::new(40 << 10);
        let [one, other] = [(); 2].map(|()| Arc::default());
        let charge = |of| MemoryCharge::new(&all, of, 0);
        let waiting = [charge(&one), charge(&one), charge(&other)];
        waiting[0].answer(10 << 10).unwrap();
        waiting[1].answer(10 << 10).unwrap();
        waiting[2].answer(15 << 10).unwrap();
        assert_eq!(charge(&one).answer(SHORT + 1), Err(MemoryFull::Client));
        let third = Arc::default();
        assert_eq!(charge(&third).answer(6 << 10), Err(MemoryFull::All));
        assert_eq!(all.taken(), 35 << 10, "what is refused holds nothing");
        charge(&third).answer(5 << 10).unwrap();
        drop(waiting);
        assert_eq!(all.taken(), 0);
    }

    #[test]
    fn a_short_answer_always_has_room() {
        let (all, client) = (RequestMemory::new(1024), Arc::default());
        let charges = [(); 3].map(|()| MemoryCharge::new(&all, &client, 0));
        for charge in &charges {
            charge.answer(SHORT).unwrap();
        }
        assert_eq!(all.taken(), 3 * SHORT);
        drop(charges);
        assert_eq!(all.taken(), 0);
    }

    /// Otherwise it would be refused for ever.
    #[test]
    fn a_request_alone_has_what_it_needs() {
        let (all, client) = (RequestMemory::new(1024), Arc::default());
        let alone = MemoryCharge::new(&all, &client, 0);
        alone.grow(1000).unwrap();
        alone.grow(5000).unwrap();
        alone.answer(1 << 20).unwrap();
        let second = MemoryCharge::new(&all, &client, 0);
        assert_eq!(second.grow(1), Err(MemoryFull::Client));
        drop(alone);
        second.grow(1 << 20).unwrap();
    }
}
