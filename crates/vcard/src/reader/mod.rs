//! Virtual cards in readers for every PC/SC program, through a separate pcscd with the driver vpcd.
//!
//! ```text
//! OpenSC, hsmux, ...  ── unix socket ──  pcscd + vpcd  ── TCP, link.rs ──  a thread for each card
//!                                        pcscd.rs, keep.sh                 slot.rs
//! ```
//!
//! The machine's own pcscd is not touched, and systemd is not needed. vpcd listens on all interfaces, so root runs it
//! in a network namespace. Without that its ports are reachable from the network, and [`Readers::isolated`] is false.

mod card_store;
mod control_server;
mod error;
mod link;
mod pcscd;
mod pcscd_folder;
mod slot;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use card_store::CardStore;
pub use control_server::{ControlRequest, ControlServer, ask};
pub use error::ReaderError;
use pcscd::Pcscd;
use pcscd_folder::PcscdFolder;
pub use pcscd_folder::is_virtual;
use slot::{Address, Slot};

use crate::{Card, CardWork, Order};

/// The maximum of pcscd and libpcsclite: PCSCLITE_MAX_READERS_CONTEXTS.
pub const MOST: usize = 16;

/// pcscd polls one reader after the other every 0.4 s; on a busy machine less often.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

/// Cards in readers, until this value is dropped or the process ends in any way.
/// A reader has two slots: with an odd number of cards the last slot is empty.
pub struct Readers {
    slots: Vec<Slot>,
    pcscd: Mutex<Option<Pcscd>>,
    folder: PcscdFolder,
}

/// One card and its reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardState {
    /// Its number, from 0, in the order of OpenSC's readers.
    pub card: usize,
    /// The reader's name in PC/SC.
    pub reader: String,
    /// The card's serial number.
    pub serial: String,
    /// Whether it is in the reader.
    pub plugged: bool,
}

impl Readers {
    /// Starts cards in a new temporary folder, and waits until pcscd has recognised them all.
    pub fn start(cards: Vec<Card>) -> Result<Self, ReaderError> {
        if cards.len() > MOST {
            return Err(ReaderError::TooMany(cards.len()));
        }
        let folder = tempfile::Builder::new()
            .prefix("hsmux-vcard-")
            .tempdir()
            .map_err(|source| ReaderError::io("making a temporary folder", source))?;
        let folder = PcscdFolder::new(folder, cards.len())?;
        let slots = cards.into_iter().map(Slot::new);
        let readers = Self {
            slots: slots
                .collect::<Result<_, _>>()
                .map_err(|source| ReaderError::io("starting a card's thread", source))?,
            pcscd: Mutex::new(None),
            folder,
        };
        readers.start_pcscd()?;
        Ok(readers)
    }

    /// Environment variables with which programs see these readers, and OpenSC shows them all.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [
            ("PCSCLITE_CSOCK_NAME", self.folder.socket()),
            ("OPENSC_CONF", self.folder.opensc()),
        ]
    }

    /// The folder of all files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whether only this process and its pcscd can reach the cards' ports.
    pub fn isolated(&self) -> bool {
        self.folder.isolated
    }

    /// How many cards there are.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// The states of all cards.
    pub fn states(&self) -> Vec<CardState> {
        let state = |(card, slot): (usize, &Slot)| CardState {
            card,
            reader: self.name(card),
            serial: slot.serial.clone(),
            plugged: slot.plugged(),
        };
        self.slots.iter().enumerate().map(state).collect()
    }

    /// The work of each card so far.
    pub fn worked(&self) -> Vec<CardWork> {
        self.slots.iter().map(Slot::worked).collect()
    }

    /// The PC/SC name of a card's reader.
    pub fn name(&self, index: usize) -> String {
        pcscd_folder::reader_name(index)
    }

    /// Gives an order to a card, counted from 0; `false` if that does not exist.
    /// pcscd notices a removal within half a second, and a card that is plugged in again within two seconds after that.
    pub fn obey(&self, card: usize, order: Order) -> bool {
        let slot = self.slots.get(card);
        slot.inspect(|slot| slot.obey(order)).is_some()
    }

    /// Ends pcscd like `systemctl stop`; programs find no PC/SC service until it is started.
    pub fn stop_pcscd(&self) {
        self.stop(&mut self.pcscd.lock());
    }

    /// Restarts pcscd, and waits until it has recognised every card that is plugged in.
    pub fn start_pcscd(&self) -> Result<(), ReaderError> {
        // Locked throughout: only one process can have the socket.
        let mut held = self.pcscd.lock();
        self.stop(&mut held);
        let pcscd = Pcscd::start(&self.folder)?;
        for (slot, &port) in self.slots.iter().zip(&self.folder.ports) {
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

    /// Kills pcscd without notice.
    pub fn kill_pcscd(&self) {
        if let Some(pcscd) = &*self.pcscd.lock() {
            pcscd.kill();
        }
    }

    /// Whether pcscd runs.
    pub fn running(&self) -> bool {
        self.pcscd.lock().as_ref().is_some_and(Pcscd::running)
    }

    /// Waits until pcscd has recognised every card that is plugged in.
    pub fn wait(&self) -> Result<(), ReaderError> {
        let deadline = Instant::now() + SEEN_WITHIN;
        let unseen = |slot: &Slot| slot.plugged() && !slot.seen(deadline);
        match self.slots.iter().position(unseen) {
            None => Ok(()),
            Some(index) => Err(ReaderError::Unseen {
                reader: self.name(index),
                log: self.folder.log_text(),
            }),
        }
    }
}
