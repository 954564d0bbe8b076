//! Cards in memory, without a reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hsmux_smartcard::{CardChannel, ChannelError};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::card::{Card, NoAnswer};
use crate::control::Control;

/// A card in a reader in memory; clones are the same reader.
#[derive(Clone)]
pub struct Slot(Arc<SlotInner>);

struct SlotInner {
    name: String,
    card: Mutex<Card>,
    control: Control,
    /// The channel with exclusive access to the card.
    owner: Mutex<Option<u64>>,
    free: Condvar,
    channels: AtomicU64,
    access_timeout: Duration,
}

/// One of several channels to the card in a [`Slot`].
pub struct MemoryChannel {
    slot: Slot,
    id: u64,
}

impl Slot {
    /// Puts the card into a reader that is named after it.
    pub fn new(card: Card) -> Self {
        Self(Arc::new(SlotInner {
            name: format!("Virtual card {}", card.serial()),
            control: card.control(),
            card: Mutex::new(card),
            owner: Mutex::default(),
            free: Condvar::new(),
            channels: AtomicU64::new(0),
            access_timeout: Duration::from_secs(60),
        }))
    }

    /// A new channel to the card.
    pub fn channel(&self) -> MemoryChannel {
        let id = self.0.channels.fetch_add(1, Ordering::Relaxed);
        MemoryChannel {
            slot: self.clone(),
            id,
        }
    }

    /// Locks the card itself; waits while it works.
    pub fn card(&self) -> MutexGuard<'_, Card> {
        self.0.card.lock()
    }

    /// Whether the card works, or is locked by [`card`](Self::card).
    pub fn busy(&self) -> bool {
        self.0.card.is_locked()
    }

    /// The control that pulls the card and orders faults, even while it works.
    pub fn control(&self) -> Control {
        self.0.control.clone()
    }
}

impl MemoryChannel {
    /// Waits until no other channel has exclusive access; takes it if `take` is set.
    fn wait(&self, take: bool) -> Result<(), ChannelError> {
        let inner = &self.slot.0;
        let mut owner = inner.owner.lock();
        let others = |owner: &mut Option<u64>| owner.is_some_and(|owner| owner != self.id);
        let waited = inner
            .free
            .wait_while_for(&mut owner, others, inner.access_timeout);
        if waited.timed_out() {
            return Err(ChannelError::TimedOut {
                reader: inner.name.clone(),
                seconds: inner.access_timeout.as_secs(),
            });
        }
        if take {
            *owner = Some(self.id);
        }
        Ok(())
    }

    fn release(&self) {
        let mut owner = self.slot.0.owner.lock();
        if *owner == Some(self.id) {
            *owner = None;
            self.slot.0.free.notify_all();
        }
    }
}

impl CardChannel for MemoryChannel {
    fn transmit(&mut self, command: &[u8]) -> Result<Vec<u8>, ChannelError> {
        self.wait(false)?;
        let mut card = self.slot.card();
        if !card.powered() {
            card.power_on();
        }
        let reader = || self.slot.0.name.clone();
        card.exchange(command).map_err(|error| match error {
            NoAnswer::Removed => ChannelError::Removed { reader: reader() },
            NoAnswer::Mute => ChannelError::Mute { reader: reader() },
            NoAnswer::Off | NoAnswer::PowerLost => ChannelError::Reset { reader: reader() },
        })
    }

    fn begin(&mut self) -> Result<(), ChannelError> {
        self.wait(true)
    }

    fn end(&mut self) -> Result<(), ChannelError> {
        self.release();
        Ok(())
    }

    fn name(&self) -> &str {
        &self.slot.0.name
    }
}

impl Drop for MemoryChannel {
    fn drop(&mut self) {
        self.release();
    }
}
