//! The DKEK of a card: cards with the same one can exchange keys.

use super::{ProvisionError, Result};
use crate::dkek::{CheckValue, DkekShare};
use crate::{Card, CardChannel, DkekStatus};

/// Imports a share into a card that still needs one.
///
/// A card that has all of its shares is left alone: what it would do with one more is not the same on
/// every version.
pub fn import_share<C: CardChannel>(
    card: &mut Card<C>,
    serial: &str,
    share: &DkekShare,
) -> Result<DkekStatus> {
    card.exclusively(|card| {
        card.select()?;
        let card_name = || serial.to_owned();
        let status = card.dkek_status()?;
        let status = status.ok_or_else(|| ProvisionError::WithoutDkek { card: card_name() })?;
        if status.missing == 0 {
            return Err(ProvisionError::DkekComplete {
                card: card_name(),
                value: CheckValue(status.key_check_value),
            });
        }
        Ok(card.import_dkek_share(share.expose())?)
    })
}

/// The key check value of a card whose DKEK is complete.
pub(super) fn check_value<C: CardChannel>(card: &mut Card<C>, serial: &str) -> Result<CheckValue> {
    let serial = serial.to_owned();
    match card.dkek_status()? {
        None => Err(ProvisionError::WithoutDkek { card: serial }),
        Some(status) if status.missing > 0 => Err(ProvisionError::DkekIncomplete {
            card: serial,
            missing: status.missing,
        }),
        Some(status) => Ok(CheckValue(status.key_check_value)),
    }
}

/// Checks that keys under the DKEK with this key check value can enter a card.
pub(super) fn expect<C: CardChannel>(
    card: &mut Card<C>,
    serial: &str,
    there: CheckValue,
) -> Result<()> {
    let here = check_value(card, serial)?;
    if here == there {
        return Ok(());
    }
    Err(ProvisionError::OtherDkek {
        card: serial.to_owned(),
        here,
        there,
    })
}
