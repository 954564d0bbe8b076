//! The way to the pool: for each process its own, for a fork's child makes another when it is first needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, Result, Secret, Uri};
use hsmux_wire::View;

use super::find;
use super::key::{PoolPrivateKey, ProviderKey};
use crate::backend::Backend;
use crate::mechanisms::Mechanisms;
use crate::process_local::ProcessLocal;
use crate::setup::{self, PoolLocation};

/// The state of one activation of the provider.
pub struct ProviderContext {
    source: PoolLocation,
    connection: ProcessLocal<ProcessBackend>,
    /// The PIN with which each process logs in.
    pin: ArcSwapOption<Secret>,
    /// Why no key was found the last time.
    said: Mutex<String>,
}

/// A process's backend.
struct ProcessBackend {
    backend: Box<dyn Backend>,
    logged_in: AtomicBool,
    refused: Mutex<Option<RefusedPin>>,
}

/// The PIN that was refused last.
struct RefusedPin {
    pin: Secret,
    error: Error,
    since: Instant,
}

/// So long a refused PIN is not shown again: decoders ask for each family of keys, and many keys have the same PIN.
const PAUSE: Duration = Duration::from_secs(1);

impl RefusedPin {
    fn is_of(&self, pin: &Secret) -> bool {
        self.pin.expose() == pin.expose() && self.since.elapsed() < PAUSE
    }
}

impl ProviderContext {
    /// The pool at its source; nothing is read or connected to before it is needed.
    pub fn new(source: PoolLocation) -> Self {
        Self {
            source,
            connection: ProcessLocal::empty(),
            pin: ArcSwapOption::empty(),
            said: Mutex::default(),
        }
    }

    /// Runs a call on the backend of this process, which has logged in if there is a PIN.
    pub fn with<T>(&self, call: impl FnOnce(&dyn Backend) -> Result<T>) -> Result<T> {
        self.on_backend(|connection| {
            self.show_pin(connection)?;
            call(&*connection.backend)
        })
    }

    fn on_backend<T>(&self, call: impl FnOnce(&ProcessBackend) -> Result<T>) -> Result<T> {
        loop {
            if let Some(connection) = &*self.connection.get() {
                return call(connection);
            }
            self.connection.put(|| ProcessBackend::new(&self.source))?;
        }
    }

    /// A PIN that was right once and is refused now is not shown again: who loads a key brings another.
    fn show_pin(&self, connection: &ProcessBackend) -> Result<()> {
        let pin = self.pin.load();
        let Some(known) = &*pin else {
            return Ok(());
        };
        connection.login(known).inspect_err(|error| {
            if error.kind() == Kind::PinIncorrect {
                self.pin.compare_and_swap(&pin, None);
            }
        })
    }

    /// Says on standard error why no key was found. OpenSSL clears the errors of its decoders, and haproxy would have
    /// nothing to report. It is said once, since each family of keys is asked for.
    pub fn say<T>(&self, found: &Result<T>) {
        let say = match found {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        // A fork's child may find it locked for ever.
        if let Some(mut said) = self.said.try_lock()
            && *said != say
        {
            if !say.is_empty() {
                crate::debug::always(&say);
            }
            *said = say;
        }
    }

    /// The key that a URI names.
    pub fn find(self: &Arc<Self>, uri: &Uri) -> Result<ProviderKey> {
        let seen = self.view()?;
        let view = if seen.logged_in {
            seen
        } else {
            self.log_in(find::pin(uri, &seen)?)
                .map_err(|error| error.at(uri))?
        };
        let found = find::one(&view, uri)?;
        let public = find::public(&view, found, uri)?;
        let offered = Mechanisms::new(&view.info);
        let private = PoolPrivateKey::new(Arc::clone(self), found.clone(), uri, offered);
        Ok(ProviderKey {
            public,
            private: Some(private),
        })
    }

    /// Shows the pool with a PIN, which is kept for the processes to come if it is the right one.
    fn log_in(&self, pin: Secret) -> Result<View> {
        self.on_backend(|connection| {
            // A daemon that has come back may have been given another PIN.
            connection.logged_in.store(false, Ordering::Release);
            connection.login(&pin)
        })?;
        self.pin.store(Some(Arc::new(pin)));
        self.view()
    }

    fn view(&self) -> Result<View> {
        let view = self.with(|backend| backend.view(0))?;
        view.ok_or_else(|| Error::protocol("no catalogue, where all is new"))
    }
}

impl ProcessBackend {
    fn new(source: &PoolLocation) -> Result<Self> {
        Ok(Self {
            backend: setup::backend(source, true)?,
            logged_in: AtomicBool::new(false),
            refused: Mutex::default(),
        })
    }

    /// Once, and one thread at a time; a daemon that comes back is told again by the backend.
    fn login(&self, pin: &Secret) -> Result<()> {
        if self.logged_in.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut refused = self.refused.lock();
        if self.logged_in.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Some(last) = refused.as_ref().filter(|last| last.is_of(pin)) {
            return Err(last.error.clone());
        }
        self.backend.login(pin.clone()).inspect_err(|error| {
            if error.kind() == Kind::PinIncorrect {
                *refused = Some(RefusedPin {
                    pin: pin.clone(),
                    error: error.clone(),
                    since: Instant::now(),
                });
            }
        })?;
        self.logged_in.store(true, Ordering::Release);
        Ok(())
    }
}
