//! A login that wastes no try: one attempt, none where a wrong one would block the PIN.

use hsmux_token::Secret;
use parking_lot::Mutex;

use super::{ProvisionError, Result};
use crate::{Card, CardChannel, CardError, PinReference, PinStatus};

/// A card, and what its user logs in with.
pub struct Access<C> {
    /// The card.
    pub card: Card<C>,
    /// Its serial number, by which messages name it.
    pub serial: String,
    /// The user's PIN.
    pub pin: Secret,
    /// Try the PIN also where one try is left.
    pub last_try: bool,
}

/// Logins of several cards, one after the other: a PIN that one of them refuses costs no other a try.
#[derive(Default)]
pub(super) struct PinTryGuard(Mutex<bool>);

impl<C: CardChannel> Access<C> {
    /// Runs `work` in a transaction, logged in; logged out afterwards.
    pub fn logged_in<T>(&mut self, work: impl FnOnce(&mut Card<C>) -> Result<T>) -> Result<T> {
        self.logged_in_through(&PinTryGuard::default(), work)
    }

    pub(super) fn logged_in_through<T>(
        &mut self,
        gate: &PinTryGuard,
        work: impl FnOnce(&mut Card<C>) -> Result<T>,
    ) -> Result<T> {
        let Self {
            card,
            serial,
            pin,
            last_try,
        } = self;
        card.exclusively(|card| {
            card.select()?;
            gate.pass(serial, || log_in(card, serial, pin, *last_try))?;
            work(card)
        })
    }
}

impl PinTryGuard {
    fn pass(&self, serial: &str, log_in: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut refused = self.0.lock();
        if *refused {
            let card = serial.to_owned();
            return Err(ProvisionError::NotTried { card });
        }
        let outcome = log_in();
        *refused = matches!(outcome, Err(ProvisionError::WrongPin { .. }));
        outcome
    }
}

/// Logs the user in, on a card whose application is selected.
pub(super) fn log_in<C: CardChannel>(
    card: &mut Card<C>,
    serial: &str,
    pin: &Secret,
    last_try: bool,
) -> Result<()> {
    may_try(card, serial, PinReference::User, last_try)?;
    let verified = card.verify(pin);
    verified.map_err(|error| refused(serial, PinReference::User, error))
}

/// Allows a try of the PIN, if it is set, not blocked, and not at its last try.
pub(super) fn may_try<C: CardChannel>(
    card: &mut Card<C>,
    serial: &str,
    pin: PinReference,
    last_try: bool,
) -> Result<()> {
    let status = card.pin_status(pin)?;
    let serial = serial.to_owned();
    Err(match status {
        PinStatus::TriesLeft(1) if !last_try => ProvisionError::LastTry {
            card: serial,
            whose: whose(pin),
        },
        PinStatus::LoggedIn | PinStatus::TriesLeft(_) => return Ok(()),
        PinStatus::Blocked if pin == PinReference::User => {
            ProvisionError::PinBlocked { card: serial }
        }
        PinStatus::Blocked => ProvisionError::SoPinBlocked { card: serial },
        PinStatus::Transport => ProvisionError::TransportPin { card: serial },
        PinStatus::NotSet => ProvisionError::NotInitialised { card: serial },
    })
}

/// The error of a command that used a PIN: a wrong one is told from everything else.
pub(super) fn refused(serial: &str, pin: PinReference, error: CardError) -> ProvisionError {
    let card = serial.to_owned();
    match error.status().and_then(crate::StatusWord::tries_left) {
        Some(0) if pin == PinReference::User => ProvisionError::PinBlocked { card },
        Some(0) => ProvisionError::SoPinBlocked { card },
        Some(tries) => ProvisionError::WrongPin {
            card,
            whose: whose(pin),
            tries,
        },
        None => error.into(),
    }
}

pub(super) fn whose(pin: PinReference) -> &'static str {
    match pin {
        PinReference::User => "PIN",
        PinReference::SecurityOfficer => "SO-PIN",
    }
}
