//! The processor: memory, session state, and one command at a time.

use std::io;
use std::sync::Arc;

use hsmux_smartcard::{CommandApdu, ResponseApdu, StatusWord};

use crate::command;
use crate::crypto::curve;
use crate::crypto::ec::EcKey;
use crate::cvc;
use crate::key::{CardKey, KeyKind};
use crate::memory::Memory;
use crate::state::{KeyRecord, PersistentState};
use crate::timing::Operation;

/// Memory and session of a card.
pub struct Chip {
    /// State that survives a power loss.
    pub memory: Memory,
    /// State that does not.
    pub session: CardSession,
    /// The longest operation of the current command, for the timing.
    pub work: Option<(Operation, KeyKind)>,
    /// Capacity for keys and files, in bytes.
    pub capacity: usize,
}

/// State from SELECT to the next SELECT, reset or power loss.
#[derive(Default)]
pub struct CardSession {
    /// The application is selected.
    pub selected: bool,
    /// The user PIN was verified.
    pub user: bool,
    /// The current file, for READ and UPDATE BINARY without an identifier.
    pub current: Option<u16>,
}

/// The reason why a command ends without data.
pub enum Halt {
    /// The card answers with this status.
    Status(StatusWord),
    /// Power was lost before the answer.
    PowerLost,
    /// The state file cannot be written.
    Memory(io::Error),
}

impl From<StatusWord> for Halt {
    fn from(status: StatusWord) -> Self {
        Self::Status(status)
    }
}

/// A command's data and status.
pub type Outcome = Result<ResponseApdu, Halt>;

/// EF.C_DevAut: the device's certificates.
pub const DEVICE_CERTIFICATES: u16 = 0x2F02;

impl Chip {
    /// Runs a command. Uncommitted changes are undone unless it succeeds.
    pub fn run(&mut self, command: &CommandApdu) -> Outcome {
        self.work = None;
        let outcome = command::run(self, command).and_then(|response| {
            self.memory.commit()?;
            Ok(response)
        });
        self.memory.roll_back();
        outcome
    }

    /// A key for one use with this algorithm. The use is counted and committed first.
    pub fn use_key(
        &mut self,
        id: u8,
        algorithm: u8,
        operation: Operation,
    ) -> Result<Arc<CardKey>, Halt> {
        let record = self.memory.state().key(id)?;
        if !record.allows(algorithm) {
            return Err(StatusWord::CONDITIONS_NOT_SATISFIED.into());
        }
        let key = record.key.clone();
        if let Some(uses) = record.uses {
            let left = uses.checked_sub(1).ok_or(StatusWord::REFERENCE_UNUSABLE)?;
            let keys = &mut self.memory.change().keys;
            keys.entry(id).and_modify(|record| record.uses = Some(left));
            self.memory.commit()?;
        }
        self.work = Some((operation, key.kind()));
        Ok(key)
    }

    /// Checks that an id is free for a new key.
    pub fn free_key_id(&self, id: u8) -> Result<(), StatusWord> {
        let taken = self.memory.state().keys.contains_key(&id);
        if taken {
            Err(StatusWord::FILE_EXISTS)
        } else {
            Ok(())
        }
    }

    /// Checks that keys and files still fit after a change.
    pub fn fits(&self) -> Result<(), StatusWord> {
        if self.memory.state().size() > self.capacity {
            return Err(StatusWord::NOT_ENOUGH_MEMORY);
        }
        Ok(())
    }

    /// The device's own key.
    pub fn device_key(&self) -> Result<Arc<CardKey>, StatusWord> {
        Ok(self.memory.state().key(0)?.key.clone())
    }
}

/// A card in factory state: with a device key and its certificates, never initialised.
pub fn manufacture(serial: &str) -> Option<PersistentState> {
    let key = EcKey::generate(curve::named("brainpoolP256r1")?);
    let mut state = PersistentState::new(serial);
    let certificates = cvc::device_chain(&key, serial)?;
    state.files.insert(DEVICE_CERTIFICATES, certificates.into());
    state.keys.insert(0, KeyRecord::new(CardKey::Ec(key)));
    Some(state)
}
