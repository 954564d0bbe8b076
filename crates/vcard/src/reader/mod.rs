//! Virtual cards in readers that every PC/SC program sees: a pcscd of our own with the driver vpcd.
//!
//! ```text
//! OpenSC, hsmux, ...  ── unix socket ──  pcscd + vpcd  ── TCP, link.rs ──  a thread for each card
//!                                        pcscd.rs, keep.sh                 slot.rs
//! ```
//!
//! The machine's own pcscd, if there is one, is left alone, and no systemd is needed. vpcd listens
//! on all interfaces: as root it runs in a network namespace, which the cards' threads enter; without
//! that right whoever reaches the machine can reach the ports, and [`Readers::isolated`] says so.

mod desk;
mod error;
mod link;
mod pcscd;
mod place;
mod shelf;
mod slot;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use desk::{Desk, Request, ask};
pub use error::ReaderError;
use pcscd::Pcscd;
use place::Place;
pub use shelf::Shelf;
use slot::{Address, Slot};

use crate::{Card, Order, Work};

/// What one pcscd takes, and libpcsclite: PCSCLITE_MAX_READERS_CONTEXTS.
pub const MOST: usize = 16;

/// pcscd looks for new cards every 0.4 s, at one reader after the other; on a busy machine less often.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

/// Cards in readers, until this value is dropped or the process ends, however that happens.
///
/// A reader has two slots: with an odd number of cards the last slot is empty.
pub struct Readers {
    slots: Vec<Slot>,
    pcscd: Mutex<Option<Pcscd>>,
    place: Place,
}

/// One card and its reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardState {
    /// Its number, from 0, as OpenSC counts readers.
    pub card: usize,
    /// What PC/SC calls its reader.
    pub reader: String,
    /// The card's serial number.
    pub serial: String,
    /// Whether it is in the reader.
    pub plugged: bool,
}

impl Readers {
    /// Brings cards up, in a folder of their own under the system's folder for temporary files, and
    /// waits until pcscd has seen them all.
    pub fn start(cards: Vec<Card>) -> Result<Self, ReaderError> {
        if cards.len() > MOST {
            return Err(ReaderError::TooMany(cards.len()));
        }
        let folder = tempfile::Builder::new()
            .prefix("hsmux-vcard-")
            .tempdir()
            .map_err(|source| ReaderError::io("making a temporary folder", source))?;
        let place = Place::new(folder, cards.len())?;
        let slots = cards.into_iter().map(Slot::new);
        let readers = Self {
            slots: slots
                .collect::<Result<_, _>>()
                .map_err(|source| ReaderError::io("starting a card's thread", source))?,
            pcscd: Mutex::new(None),
            place,
        };
        readers.start_pcscd()?;
        Ok(readers)
    }

    /// What a program needs in its environment to see these readers, and OpenSC to show them all.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [
            ("PCSCLITE_CSOCK_NAME", self.place.socket()),
            ("OPENSC_CONF", self.place.opensc()),
        ]
    }

    /// The folder that all of it is in.
    pub fn folder(&self) -> &Path {
        self.place.folder()
    }

    /// Whether nobody but this process and its pcscd reaches the cards' ports.
    pub fn isolated(&self) -> bool {
        self.place.isolated
    }

    /// How many cards there are.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// All cards, as they stand.
    pub fn states(&self) -> Vec<CardState> {
        let state = |(card, slot): (usize, &Slot)| CardState {
            card,
            reader: self.name(card),
            serial: slot.serial.clone(),
            plugged: slot.plugged(),
        };
        self.slots.iter().enumerate().map(state).collect()
    }

    /// What each card has done so far.
    pub fn worked(&self) -> Vec<Work> {
        self.slots.iter().map(Slot::worked).collect()
    }

    /// What PC/SC calls the reader of a card.
    pub fn name(&self, index: usize) -> String {
        place::reader_name(index)
    }

    /// Gives an order to a card, counted from 0; `false` if there is none with this number.
    ///
    /// A card may be pulled whatever it is doing. pcscd notices at its next look, within half a
    /// second, and a card that is plugged in again within two seconds after that.
    pub fn obey(&self, card: usize, order: Order) -> bool {
        let slot = self.slots.get(card);
        slot.inspect(|slot| slot.obey(order)).is_some()
    }

    /// Ends pcscd, as `systemctl stop` would; programs find no PC/SC service until it is started.
    pub fn stop_pcscd(&self) {
        self.stop(&mut self.pcscd.lock());
    }

    /// Starts pcscd, after the one that ran has been ended, and waits until it has seen every card
    /// that is plugged in.
    pub fn start_pcscd(&self) -> Result<(), ReaderError> {
        // Held for the whole of it: there is one socket.
        let mut held = self.pcscd.lock();
        self.stop(&mut held);
        let pcscd = Pcscd::start(&self.place)?;
        for (slot, &port) in self.slots.iter().zip(&self.place.ports) {
            let network = pcscd.network.clone();
            slot.connect_to(Some(Address { port, network }));
        }
        *held = Some(pcscd);
        drop(held);
        self.wait()
    }

    fn stop(&self, pcscd: &mut Option<Pcscd>) {
        for slot in &self.slots {
            slot.connect_to(None);
        }
        pcscd.take();
    }

    /// Ends pcscd without a word to anybody.
    pub fn kill_pcscd(&self) {
        if let Some(pcscd) = &*self.pcscd.lock() {
            pcscd.kill();
        }
    }

    /// Whether pcscd runs.
    pub fn running(&self) -> bool {
        self.pcscd.lock().as_ref().is_some_and(Pcscd::running)
    }

    /// Waits until pcscd has seen every card that is plugged in.
    pub fn wait(&self) -> Result<(), ReaderError> {
        let deadline = Instant::now() + SEEN_WITHIN;
        let unseen = |slot: &Slot| slot.plugged() && !slot.seen(deadline);
        match self.slots.iter().position(unseen) {
            None => Ok(()),
            Some(index) => Err(ReaderError::Unseen {
                reader: self.name(index),
                log: self.place.log_text(),
            }),
        }
    }
}
