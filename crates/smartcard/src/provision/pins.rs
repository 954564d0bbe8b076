//! New PINs.

use hsmux_token::Secret;

use super::Result;
use super::access::{may_try, refused};
use crate::{Card, CardChannel, PinReference, PinStatus, SoPin};

/// The user's PIN for a new one; a transport PIN becomes one that works.
pub fn change<C: CardChannel>(
    card: &mut Card<C>,
    serial: &str,
    old: &Secret,
    new: &Secret,
    last_try: bool,
) -> Result<()> {
    card.exclusively(|card| {
        card.select()?;
        // The transport PIN's own counter is not told; its change is all that it is good for.
        if card.pin_status(PinReference::User)? != PinStatus::Transport {
            may_try(card, serial, PinReference::User, last_try)?;
        }
        let changed = card.change_pin(old, new);
        changed.map_err(|error| refused(serial, PinReference::User, error))
    })
}

/// Sets a blocked PIN free with the SO-PIN, and sets a new one if it is given.
pub fn unblock<C: CardChannel>(
    card: &mut Card<C>,
    serial: &str,
    so_pin: &SoPin,
    new: Option<&Secret>,
    last_try: bool,
) -> Result<()> {
    card.exclusively(|card| {
        card.select()?;
        may_try(card, serial, PinReference::SecurityOfficer, last_try)?;
        let reset = card.reset_retry_counter(so_pin, new);
        reset.map_err(|error| refused(serial, PinReference::SecurityOfficer, error))
    })
}
