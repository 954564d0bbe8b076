//! The pool in this process: any [`Token`], seen as the daemon shows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hsmux_pool::has_broker_mark;
use hsmux_token::{
    Attributes, Error, Kind, Object, Operation, Outcome, Result, Secret, Token, TokenFlags, ck,
};
use hsmux_wire::View;

use super::{Backend, same};
use crate::object::template::is_private;

/// A token in this process.
pub struct EmbeddedBackend {
    token: Arc<dyn Token>,
    /// The PIN of C_Login; `None`: that it is called is enough.
    pin: Option<Secret>,
    patience: Duration,
    user: AtomicBool,
}

impl EmbeddedBackend {
    /// Takes a token that serves already, or will.
    pub fn new(token: Arc<dyn Token>, pin: Option<Secret>, patience: Duration) -> Self {
        Self {
            token,
            user: AtomicBool::new(false),
            pin,
            patience,
        }
    }
}

/// True if the broker would take an object with these attributes for one of its keys.
fn is_broker_key(attributes: &Attributes) -> bool {
    let certificate = Some(ck::CKO_CERTIFICATE);
    has_broker_mark(attributes) && attributes.number(ck::CKA_CLASS) != certificate
}

impl Backend for EmbeddedBackend {
    fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    fn execute(&self, operation: &Operation) -> Result<Outcome> {
        if operation.templates().any(is_broker_key) {
            let why = "such a CKA_ID is the broker's own: choose another one";
            return Err(Error::request(Kind::Forbidden, why).at(operation.call()));
        }
        self.token.execute(operation, self.deadline())
    }

    fn view(&self, known: u64) -> Result<Option<View>> {
        let snapshot = self.token.objects()?;
        let logged_in = self.user.load(Ordering::Acquire);
        // Epochs of a view are not 0: a caller without a view says 0.
        let epoch = (snapshot.epoch + 1) << 1 | u64::from(logged_in);
        if epoch == known {
            return Ok(None);
        }
        let mut info = (*self.token.info()).clone();
        info.flags |= TokenFlags::TOKEN_INITIALIZED
            | TokenFlags::USER_PIN_INITIALIZED
            | TokenFlags::LOGIN_REQUIRED;
        // With it, programs call C_Login without asking for a PIN (PKCS#11 3.0, section 5.6.8).
        info.flags.set(
            TokenFlags::PROTECTED_AUTHENTICATION_PATH,
            self.pin.is_none(),
        );
        let is_shown =
            |object: &&Object| logged_in || !is_private(object.id.class, &object.attributes);
        let objects = snapshot.objects.iter().filter(is_shown);
        Ok(Some(View {
            epoch,
            info,
            objects: objects.cloned().collect(),
            logged_in,
        }))
    }

    fn login(&self, pin: Secret) -> Result<()> {
        self.confirm(&pin)?;
        self.user.store(true, Ordering::Release);
        Ok(())
    }

    fn confirm(&self, pin: &Secret) -> Result<()> {
        match &self.pin {
            Some(own) => same(pin, Some(own)),
            None => Ok(()),
        }
    }

    fn logout(&self) -> Result<()> {
        self.user.store(false, Ordering::Release);
        Ok(())
    }
}
