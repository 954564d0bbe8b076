//! The pool of the daemon, over its socket.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hsmux_token::permissions::verify_server;
use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Operation, Outcome, Result, Secret};
use hsmux_wire::{Answer, Call, Client, Endpoint, View};

use super::{Backend, same};

/// The daemon, which may come and go.
pub struct DaemonBackend {
    client: Client,
    patience: Duration,
    /// Which start of the daemon the last view is of: its epochs mean nothing to another.
    boot: AtomicU64,
    pin: Mutex<Option<Secret>>,
}

impl DaemonBackend {
    /// The daemon at a socket; it is connected to when it is first needed.
    pub fn new(endpoint: Endpoint, patience: Duration) -> Result<Self> {
        Ok(Self {
            client: Client::new(endpoint, &program())?,
            patience,
            boot: AtomicU64::new(0),
            pin: Mutex::default(),
        })
    }

    /// Greets it now, and not only at the first call.
    pub fn reach(&self) -> Result<()> {
        self.client.reach()
    }

    /// Believes a daemon only of root, or of the user whom root gave the socket's folder.
    #[must_use]
    pub fn verified(mut self) -> Self {
        self.client = self.client.verifying(|endpoint, peer| {
            let Endpoint::Unix(socket) = endpoint else {
                return Err(std::io::ErrorKind::Unsupported.into());
            };
            verify_server(socket, peer.uid)
        });
        self
    }

    fn call(&self, call: Call) -> Result<Answer> {
        let reply = self.client.call(call, self.deadline())?;
        Ok(reply.answer)
    }

    fn ask_view(&self, known: u64) -> Result<Option<View>> {
        match self.call(Call::Catalogue { known })? {
            Answer::Catalogue(view) => Ok(view),
            other => Err(unexpected(&other)),
        }
    }

    fn done(&self, call: Call) -> Result<()> {
        match self.call(call)? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

impl Backend for DaemonBackend {
    fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    fn execute(&self, operation: &Operation) -> Result<Outcome> {
        self.client.execute(operation, self.deadline())
    }

    fn view(&self, known: u64) -> Result<Option<View>> {
        let view = self.ask_view(known)?;
        let boot = self.client.welcome().map_or(0, |welcome| welcome.boot);
        if self.boot.swap(boot, Ordering::AcqRel) == boot || view.is_some() {
            return Ok(view);
        }
        self.ask_view(0)
    }

    fn login(&self, pin: Secret) -> Result<()> {
        self.done(Call::Login(pin.clone()))?;
        *self.pin.lock() = Some(pin);
        Ok(())
    }

    fn confirm(&self, pin: &Secret) -> Result<()> {
        same(pin, self.pin.lock().as_ref())
    }

    fn logout(&self) -> Result<()> {
        *self.pin.lock() = None;
        self.done(Call::Logout)
    }
}

fn unexpected(answer: &Answer) -> Error {
    Error::protocol(format!("the daemon answers what was not asked: {answer:?}"))
}

/// The program's name, for the daemon's log.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
