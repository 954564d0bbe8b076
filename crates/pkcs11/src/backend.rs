//! Backends: the daemon, or a pool in this process.

mod daemon;
mod embedded;

use std::time::Instant;

use hsmux_token::{Error, Kind, Operation, Outcome, Result, Secret};
use hsmux_wire::View;

pub use daemon::DaemonBackend;
pub use embedded::EmbeddedBackend;

/// The pool, as one application sees it.
pub trait Backend: Send + Sync {
    /// By when a call that begins now is answered.
    fn deadline(&self) -> Instant;

    /// Runs one operation, by its [deadline](Self::deadline).
    fn execute(&self, operation: &Operation) -> Result<Outcome>;

    /// The catalogue; `None` if it is still as it was in the epoch `known` (0: none is known).
    fn view(&self, known: u64) -> Result<Option<View>>;

    /// C_Login as CKU_USER. The PIN is kept for as long as the login lasts.
    fn login(&self, pin: Secret) -> Result<()>;

    /// Compares a PIN with that of the login (CKU_CONTEXT_SPECIFIC).
    fn confirm(&self, pin: &Secret) -> Result<()>;

    /// C_Logout.
    fn logout(&self) -> Result<()>;
}

/// Compares a PIN in a time that does not depend on how many of its bytes are right.
fn same(pin: &Secret, right: Option<&Secret>) -> Result<()> {
    let wrong = || Error::request(Kind::PinIncorrect, "C_Login: the PIN is wrong");
    let (pin, right) = (pin.expose(), right.ok_or_else(wrong)?.expose());
    let differs = pin.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b));
    if differs == 0 && pin.len() == right.len() {
        Ok(())
    } else {
        Err(wrong())
    }
}
