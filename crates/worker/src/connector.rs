//! The two ways to connect a seat: a worker process, or a module in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hsmux_module::{ModuleToken, Options};
use hsmux_token::{Error, Result, Token, ck};
use hsmux_wire::{Link, Reactor, RemoteToken};

use super::Environment;
use super::orders::{LinkOptions, ModuleOrder, Order};
use super::sandbox::Sandbox;
use super::start::start;
use super::turns::StartTurn;
use hsmux_pool::Connector;

/// C_Initialize, C_Login and the rest; a module may hang in any of them.
const START_WITHIN: Duration = Duration::from_secs(30);

/// Tries of a start that fails the way SoftHSM does when two processes start at once. The other one may be another program.
const TRIES: usize = 3;

/// Operations on one lane at once. The scheduler sends no more than this to a lane, and as many only to fast tokens.
const DEPTH: usize = hsmux_pool::DEEPEST;

/// A host takes one call at a time on each lane, and one operation in a call.
pub const DEPTH_OF_LINKS: usize = 1;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// A seat in a worker process of its own.
pub struct ProcessConnector {
    program: PathBuf,
    order: Order,
    environment: Environment,
    start_within: Duration,
}

impl ProcessConnector {
    /// `program` is started with the one argument `worker`, and calls [`worker_main`](super::worker_main).
    pub fn new(program: impl Into<PathBuf>, options: Options) -> Self {
        let sandbox = Sandbox::unbounded();
        Self::of(
            program,
            Order::Module(Box::new(ModuleOrder { options, sandbox })),
        )
    }

    /// Like [`Self::new`], with the worker in a sandbox.
    pub fn confined(program: impl Into<PathBuf>, options: Options, sandbox: Sandbox) -> Self {
        Self::of(
            program,
            Order::Module(Box::new(ModuleOrder { options, sandbox })),
        )
    }

    /// Like [`Self::new`], with `program link`, which calls [`serve_orders`](super::serve_orders) and connects to a token of
    /// another host.
    pub fn link(program: impl Into<PathBuf>, options: LinkOptions) -> Self {
        Self::of(program, Order::Link(options))
    }

    fn of(program: impl Into<PathBuf>, order: Order) -> Self {
        Self {
            program: program.into(),
            order,
            environment: Environment::default(),
            start_within: START_WITHIN,
        }
    }

    /// Changes the environment that the worker inherits.
    #[must_use]
    pub fn environment(mut self, environment: impl Into<Environment>) -> Self {
        self.environment = environment.into();
        self
    }

    /// How long the start may take, login included; 30 s without this.
    #[must_use]
    pub fn start_within(mut self, within: Duration) -> Self {
        self.start_within = within;
        self
    }

    /// Starts the process once, and connects to it.
    pub fn start(&self) -> Result<Arc<RemoteToken>> {
        let reactor = Reactor::shared()?;
        let started = start(
            &self.program,
            &self.environment,
            &self.order,
            self.start_within,
        )?;
        RemoteToken::start(
            reactor,
            Link {
                name: self.order.called(),
                info: started.info,
                version: started.version,
                lanes: started.lanes,
                admin: Some(started.admin),
                one_frame: false,
                depth: match self.order {
                    Order::Module(_) => DEPTH,
                    Order::Link(_) => DEPTH_OF_LINKS,
                },
                peer: Box::new(started.child),
            },
        )
    }
}

impl Connector for ProcessConnector {
    fn connect(&self) -> Result<Arc<dyn Token>> {
        let Order::Module(order) = &self.order else {
            return Ok(self.start()?);
        };
        order.sandbox.warn_if_weak();
        persist(|| {
            let _turn = StartTurn::take(&order.options.module);
            Ok(self.start()?)
        })
    }
}

/// A seat in this process: for modules that are fast and thread-safe.
pub struct ThreadConnector {
    options: Options,
}

impl ThreadConnector {
    /// The module is loaded at the first connection.
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl Connector for ThreadConnector {
    fn connect(&self) -> Result<Arc<dyn Token>> {
        persist(|| Ok(ModuleToken::open(self.options.clone())?))
    }
}

/// Retries errors that look like SoftHSM's start race, in calls before or after C_Login. It never retries an error of C_Login
/// itself, which is [`Kind::PinHeld`](hsmux_token::Kind::PinHeld) unless the token did not look at the PIN.
fn persist(connect: impl Fn() -> Result<Arc<dyn Token>>) -> Result<Arc<dyn Token>> {
    let mut tried = 1;
    loop {
        match connect() {
            Err(error) if tried < TRIES && is_start_race(&error) => {
                tracing::info!(%error, "a start is tried again");
                std::thread::sleep(PAUSE);
                tried += 1;
            }
            result => return result,
        }
    }
}

fn is_start_race(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(ck::CKR_GENERAL_ERROR | ck::CKR_TOKEN_NOT_RECOGNIZED)
    )
}
