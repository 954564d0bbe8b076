//! One virtual card, from its contacts on.

use std::path::PathBuf;
use std::time::Instant;

use hsmux_smartcard::{CommandApdu, ResponseApdu, StatusWord};

use crate::chip::{CardSession, Chip, Halt, manufacture};
use crate::control::Control;
use crate::delay::DelaySampler;
use crate::fault::Effects;
use crate::memory::{self, Memory};
use crate::timing::Timing;

/// The ATR of a SmartCard-HSM with contacts, as OpenSC recognises it.
const ATR: &[u8] = &[
    0x3B, 0xFE, 0x18, 0x00, 0x00, 0x81, 0x31, 0xFE, 0x45, 0x80, 0x31, 0x81, 0x54, 0x48, 0x53, 0x4D,
    0x31, 0x73, 0x80, 0x21, 0x40, 0x81, 0x07, 0xFA,
];

/// SIGN, for the fault that spoils signatures.
const SIGN: u8 = 0x68;
/// GET RESPONSE, which fetches the rest after a short answer.
const GET_RESPONSE: u8 = 0xC0;

/// Properties of a new card.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Serial number, 3 to 11 printable characters without spaces. A card from a state file keeps its own.
    pub serial: String,
    /// Its service times.
    pub timing: Timing,
    /// The state file; `None`: the state ends with the [`Card`].
    pub state: Option<PathBuf>,
    /// Approximate capacity for keys and files, in bytes.
    pub capacity: usize,
}

impl Profile {
    /// A card in memory with this serial number, no delays and a real card's capacity.
    pub fn new(serial: &str) -> Self {
        Self {
            serial: serial.to_owned(),
            timing: Timing::None,
            state: None,
            capacity: 76_000,
        }
    }

    /// Sets the service times.
    #[must_use]
    pub fn timing(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// Sets the state file, which is read if it exists.
    #[must_use]
    pub fn state(self, file: impl Into<PathBuf>) -> Self {
        let state = Some(file.into());
        Self { state, ..self }
    }

    /// Sets the capacity in bytes.
    #[must_use]
    pub fn capacity(self, capacity: usize) -> Self {
        Self { capacity, ..self }
    }
}

/// An error on creation of a card.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// The serial number does not fit into a certificate's holder reference.
    #[error("serial number {0:?}: it must have 3 to 11 printable characters without spaces")]
    Serial(String),
    /// The state file cannot be read or written.
    #[error("state of the virtual card in {file}: {error}")]
    State {
        /// The file.
        file: PathBuf,
        /// The error of the system or of the parser.
        error: std::io::Error,
    },
}

/// The reason why the card does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// It is not in the reader, or was pulled during the command.
    #[error("the card is not in the reader")]
    Removed,
    /// It has no power: before [`Card::power_on`], or after it was pulled and plugged in again.
    #[error("the card has no power")]
    Off,
    /// Power was lost during the command.
    #[error("the card lost its power in the middle of a command")]
    PowerLost,
    /// It does not answer.
    #[error("the card does not answer")]
    Mute,
}

/// A virtual SmartCard-HSM. It protects nothing: keys and PINs are in clear text, in memory or in a file.
pub struct Card {
    chip: Chip,
    control: Control,
    delay: DelaySampler,
    powered: bool,
    /// How often it had been pulled when it was powered on.
    pulls: u64,
    /// The data for GET RESPONSE.
    waiting: Option<ResponseApdu>,
}

impl Card {
    /// Reads a card from its state file, or creates a new one.
    pub fn new(profile: Profile) -> Result<Self, CardError> {
        let Profile { serial, state, .. } = &profile;
        let old = match state {
            Some(file) => memory::read(file).map_err(|error| state_error(state.as_ref(), error))?,
            None => None,
        };
        let printable = serial.bytes().all(|byte| byte.is_ascii_graphic());
        let fresh = (printable && (3..=11).contains(&serial.len())).then(|| manufacture(serial));
        let known = old.or_else(|| fresh.flatten());
        let known = known.ok_or_else(|| CardError::Serial(serial.clone()))?;
        let serial = &known.serial;
        tracing::warn!(
            serial,
            "virtual SmartCard-HSM: for tests, it protects nothing"
        );
        let mut memory = Memory::new(known, state.clone());
        if let Err(Halt::Memory(error)) = memory.commit() {
            return Err(state_error(state.as_ref(), error));
        }
        Ok(Self {
            chip: Chip {
                memory,
                session: CardSession::default(),
                work: None,
                capacity: profile.capacity,
            },
            control: Control::default(),
            delay: DelaySampler::new(profile.timing),
            powered: false,
            pulls: 0,
            waiting: None,
        })
    }

    /// Its serial number.
    pub fn serial(&self) -> &str {
        &self.chip.memory.state().serial
    }

    /// The control that pulls the card and orders faults.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Powers the card on, or resets it; returns the ATR.
    pub fn power_on(&mut self) -> &'static [u8] {
        self.power_off();
        self.powered = true;
        self.pulls = self.control.pulls();
        ATR
    }

    /// Powers the card off; uncommitted changes are lost.
    pub fn power_off(&mut self) {
        self.powered = false;
        self.waiting = None;
        self.chip.session = CardSession::default();
    }

    /// A warm reset; returns the ATR.
    pub fn reset(&mut self) -> &'static [u8] {
        self.power_on()
    }

    /// Whether it has power. After it was pulled, it has none until it is powered on again.
    pub fn powered(&self) -> bool {
        self.powered && self.pulls == self.control.pulls()
    }

    /// Runs one command; without an answer the result is empty.
    /// It takes the time of the profile's timing, including the computation.
    pub fn transmit(&mut self, command: &[u8]) -> Vec<u8> {
        self.exchange(command).unwrap_or_default()
    }

    /// Like [`transmit`](Self::transmit), with the reason if there is no answer.
    pub fn exchange(&mut self, command: &[u8]) -> Result<Vec<u8>, NoAnswer> {
        let start = Instant::now();
        let answer = self.work(command, start);
        self.control.work(start.elapsed());
        answer
    }

    fn work(&mut self, command: &[u8], start: Instant) -> Result<Vec<u8>, NoAnswer> {
        if !self.control.plugged() {
            return Err(NoAnswer::Removed);
        }
        if !self.powered() {
            self.power_off();
            return Err(NoAnswer::Off);
        }
        let ins = command.get(1).copied().unwrap_or_default();
        let effects: Effects = self.control.meet(ins).into_iter().collect();
        if effects.mute {
            return Err(NoAnswer::Mute);
        }
        let answer = self.answer(command, &effects);
        self.wait(start, &effects)?;
        if answer.is_err() {
            self.power_off();
        }
        answer
    }

    fn answer(&mut self, command: &[u8], effects: &Effects) -> Result<Vec<u8>, NoAnswer> {
        self.chip.work = None;
        if let Some(status) = effects.status {
            return Ok(ResponseApdu::status(status).encode().to_vec());
        }
        let Ok(command) = CommandApdu::parse(command) else {
            return Ok(ResponseApdu::status(StatusWord::WRONG_LENGTH)
                .encode()
                .to_vec());
        };
        self.chip.memory.cut_power(effects.power_loss);
        let mut response = self.run(&command)?;
        if effects.power_loss.is_some() {
            return Err(NoAnswer::PowerLost);
        }
        if let (true, SIGN, Some(last)) = (
            effects.wrong_signature,
            command.ins,
            response.data.last_mut(),
        ) {
            *last ^= 1;
        }
        Ok(self.fit(response, command.ne).encode().to_vec())
    }

    fn run(&mut self, command: &CommandApdu) -> Result<ResponseApdu, NoAnswer> {
        let waiting = self.waiting.take();
        if (command.cla, command.ins) == (0, GET_RESPONSE) {
            let nothing = ResponseApdu::status(StatusWord::CONDITIONS_NOT_SATISFIED);
            return Ok(waiting.unwrap_or(nothing));
        }
        match self.chip.run(command) {
            Ok(response) => Ok(response),
            Err(Halt::Status(status)) => Ok(ResponseApdu::status(status)),
            Err(Halt::PowerLost) => Err(NoAnswer::PowerLost),
            Err(Halt::Memory(error)) => {
                tracing::error!(serial = self.serial(), %error, "the card's state cannot be written");
                Ok(ResponseApdu::status(StatusWord::MEMORY_FAILURE))
            }
        }
    }

    /// Returns the requested length; the rest waits for GET RESPONSE.
    fn fit(&mut self, mut response: ResponseApdu, ne: Option<usize>) -> ResponseApdu {
        // A command that expects no answer gets none.
        let ne = ne.unwrap_or(0);
        let len = ne.min(response.data.len());
        let rest = response.data.split_off(len);
        if ne == 0 || rest.is_empty() {
            return response;
        }
        let more = u8::try_from(rest.len()).unwrap_or(0);
        let status = std::mem::replace(&mut response.status, StatusWord::more_data(more));
        self.waiting = Some(ResponseApdu {
            data: rest.into(),
            status,
        });
        response
    }

    fn wait(&mut self, start: Instant, effects: &Effects) -> Result<(), NoAnswer> {
        let work = self.chip.work;
        let end = work.and_then(|(operation, key)| self.delay.end(start, operation, key));
        let until = match end {
            None if effects.slow.is_zero() => None,
            end => Some(end.unwrap_or_else(Instant::now) + effects.slow),
        };
        let still_there = match until {
            Some(until) => self.control.sleep_until(until, self.pulls),
            None => self.powered(),
        };
        if !still_there {
            self.power_off();
            return Err(NoAnswer::Removed);
        }
        if let (Some(_), Some(until)) = (end, until) {
            self.delay.ended(until, Instant::now());
        }
        Ok(())
    }
}

fn state_error(file: Option<&PathBuf>, error: std::io::Error) -> CardError {
    CardError::State {
        file: file.cloned().unwrap_or_default(),
        error,
    }
}
