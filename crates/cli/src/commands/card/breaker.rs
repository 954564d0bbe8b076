//! PINs of cards, under the same rules as those of members: no process of hsmux tries a refused PIN again.

use std::path::PathBuf;

use hsmux_module::pin::{self, PinUser};
use hsmux_smartcard::provision::{Access, ProvisionError};
use hsmux_smartcard::{CardChannel, CardError, SoPin};
use hsmux_token::{Error, Secret, TokenInfo, ck};

use crate::context::Context;

/// The records of PINs. They need a configuration for their folder; without one each command has none.
pub struct Breaker(Option<PathBuf>);

impl Breaker {
    pub fn new(context: &Context) -> anyhow::Result<Self> {
        let there = context.file().exists();
        let state = there.then(|| context.load()).transpose()?;
        Ok(Self(state.map(|config| config.state)))
    }

    /// Logs in once, to check the PIN before all further work.
    pub fn pass<C: CardChannel>(&self, access: &mut Access<C>) -> anyhow::Result<()> {
        if self.0.is_none() {
            return Ok(());
        }
        let (serial, pin) = (access.serial.clone(), access.pin.clone());
        self.show(&serial, PinUser::User, pin.expose(), || {
            access.logged_in(|_| Ok(()))
        })
    }

    /// Runs a call that shows a PIN to a card.
    pub fn show<T>(
        &self,
        serial: &str,
        user: PinUser,
        pin: &[u8],
        call: impl FnOnce() -> Result<T, ProvisionError>,
    ) -> anyhow::Result<T> {
        let Some(state) = &self.0 else {
            return Ok(call()?);
        };
        let mut outcome = None;
        let shown = pin::show(state, &identity(serial), user, pin, || {
            let result = call();
            let told = result.as_ref().map(drop).map_err(code);
            outcome = Some(result);
            told
        });
        match (outcome, shown) {
            (Some(Ok(value)), _) => Ok(value),
            (Some(Err(error)), _) => Err(error.into()),
            (None, Err(held)) => {
                anyhow::bail!("card {serial}: {held}")
            }
            (None, Ok(())) => anyhow::bail!("card {serial}: the PIN was not shown"),
        }
    }

    /// Records the card's new PIN.
    pub fn learn(&self, serial: &str, pin: &Secret) -> anyhow::Result<()> {
        if let Some(state) = &self.0 {
            pin::learn(state, &identity(serial), PinUser::User, pin.expose())?;
        }
        Ok(())
    }
}

/// An SO-PIN in the digits that users type, and that C_Login takes.
pub fn digits(so_pin: &SoPin) -> Secret {
    Secret::new(hex::encode(so_pin.expose()).into_bytes())
}

/// The card's data as in OpenSC's module, so that the pool uses the same record.
fn identity(serial: &str) -> TokenInfo {
    TokenInfo {
        manufacturer: "www.CardContact.de".into(),
        model: "PKCS#15 emulated".into(),
        serial: serial.to_owned(),
        ..TokenInfo::default()
    }
}

/// The effect of an error on the PIN, as a code of C_Login.
fn code(error: &ProvisionError) -> Error {
    let code = match error {
        ProvisionError::WrongPin { .. } => ck::CKR_PIN_INCORRECT,
        ProvisionError::PinBlocked { .. } | ProvisionError::SoPinBlocked { .. } => {
            ck::CKR_PIN_LOCKED
        }
        // The PIN was not shown, or the error has another reason and costs no try.
        ProvisionError::Card(CardError::Invalid { .. } | CardError::Refused { .. })
        | ProvisionError::LastTry { .. }
        | ProvisionError::NotTried { .. }
        | ProvisionError::TransportPin { .. }
        | ProvisionError::NotInitialised { .. } => ck::CKR_USER_PIN_NOT_INITIALIZED,
        other => return Error::lost(other.to_string()),
    };
    Error::vendor("VERIFY", code)
}
