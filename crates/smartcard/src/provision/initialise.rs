//! A card's first day, or its first day again.

use super::Result;
use super::access::{may_try, refused};
use crate::pkcs15::TokenInfo;
use crate::{Card, CardChannel, FileId, Initialize, PinReference, PinStatus, StatusWord};

/// Erases a card with all its keys, and sets it up. A wrong SO-PIN costs one of its tries, and erases nothing.
///
/// A card that was never initialised takes the SO-PIN that it is given. The label is written with the
/// new PIN, which a transport PIN does not allow: such a card keeps an empty one.
pub fn initialise<C: CardChannel>(
    card: &mut Card<C>,
    serial: &str,
    how: &Initialize,
    label: &str,
    last_try: bool,
) -> Result<()> {
    card.exclusively(|card| {
        card.select()?;
        let before = card.pin_status(PinReference::SecurityOfficer)?;
        if before != PinStatus::NotSet {
            may_try(card, serial, PinReference::SecurityOfficer, last_try)?;
        }
        let initialised = card.initialize(how);
        if let Err(error) = initialised {
            return Err(
                match (
                    error.status(),
                    card.pin_status(PinReference::SecurityOfficer)?,
                ) {
                    // The card does not say "wrong SO-PIN", but it counts one.
                    (Some(StatusWord::CONDITIONS_NOT_SATISFIED), after) if after != before => {
                        let counted = match after {
                            PinStatus::TriesLeft(tries) => StatusWord::tries(tries),
                            _ => StatusWord::PIN_BLOCKED,
                        };
                        let error = card.refused("INITIALIZE DEVICE", counted);
                        refused(serial, PinReference::SecurityOfficer, error)
                    }
                    _ => error.into(),
                },
            );
        }
        card.select()?;
        if !how.transport_pin {
            card.verify(&how.pin)?;
            card.replace_file(FileId::TOKEN_INFO, &TokenInfo::labelled(label).encode())?;
        }
        Ok(())
    })
}
