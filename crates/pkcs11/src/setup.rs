//! Which backend it is to be: by the environment and the configuration file.

use std::path::Path;
use std::time::Duration;

use hsmux_pool::Options;
use hsmux_pool::config::{self, Config, Login};
use hsmux_pool::replicate::{self, Hold};
use hsmux_token::{Error, Kind, Result, Secret};
use hsmux_wire::Endpoint;

use crate::backend::{Backend, Daemon, Embedded};
use crate::worker;

/// Names the daemon's socket; then no configuration file is read.
const SOCKET: &str = "HSMUX_SOCKET";

/// How long an operation may take where no configuration file says.
const PATIENCE: Duration = Duration::from_secs(30);

/// The backend that the environment and the configuration ask for.
///
/// `threads` says whether the application lets the library start some.
pub fn backend(threads: bool) -> Result<Box<dyn Backend>> {
    if let Some(socket) = std::env::var_os(SOCKET).filter(|path| !path.is_empty()) {
        let endpoint = Endpoint::from(Path::new(&socket));
        return Ok(Box::new(Daemon::new(endpoint, PATIENCE)?));
    }
    let file = config::default_path();
    let config = config::load(&file).map_err(|mistakes| {
        let lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        mistake(lines.join("\n"))
    })?;
    if config.module.embedded {
        return embedded(&config, threads);
    }
    let endpoint = Endpoint::from(&*config.module.socket);
    Ok(Box::new(Daemon::new(endpoint, config.pool.deadline)?))
}

/// A read-only pool cannot be embedded, which [`config::load`] has seen to.
fn embedded(config: &Config, threads: bool) -> Result<Box<dyn Backend>> {
    let pin = pin(config)?;
    let options = Options {
        threads,
        ..config.options()
    };
    let seats = config.seats(&worker::program(config), None);
    // Several processes may embed the same pool: whoever changes a token writes the journal then.
    let (pool, _) = replicate::start(options, seats, Hold::WhileChanging)?;
    Ok(Box::new(Embedded::new(pool, pin, config.pool.deadline)))
}

/// The PIN of C_Login: that of the first listener, or the first member's.
fn pin(config: &Config) -> Result<Option<Secret>> {
    let listener = config.listeners.first();
    if listener.is_some_and(|listener| listener.login == Login::Peer) {
        return Ok(None);
    }
    let first = || config.tokens.iter().find_map(|member| member.pin.as_ref());
    match listener
        .and_then(|listener| listener.pin.as_ref())
        .or_else(first)
    {
        Some(source) => source.read().map(Some),
        None => Err(mistake(format!(
            "{}: no PIN for C_Login: neither [daemon] pin nor one of a member",
            config.file.display()
        ))),
    }
}

fn mistake(message: impl Into<String>) -> Error {
    Error::request(Kind::Environment, message)
}
