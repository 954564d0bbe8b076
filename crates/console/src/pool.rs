//! The pool for a program that logs in.

use std::sync::Arc;

use hsmux_config::{Config, Login, PinSource};
use hsmux_daemon::PoolClient;
use hsmux_token::{Kind, Secret, Token};

use crate::exit::Exit;

/// Connects to the running daemon. The default PIN is that of the listener, or of the first member that has one.
pub fn connect(config: &Config, pin: Option<Secret>) -> anyhow::Result<Arc<dyn Token>> {
    let socket = &config.module.socket;
    let listener = config.listeners.iter().find(|l| l.socket.path == *socket);
    let own = listener.filter(|l| l.login == Login::Pin).and_then(|l| {
        let first = || config.tokens.iter().find_map(|member| member.pin.as_ref());
        l.pin.as_ref().or_else(first)
    });
    let pin = pin.map_or_else(|| own.map(PinSource::read).transpose(), |pin| Ok(Some(pin)))?;
    let token = PoolClient::connect(socket, pin).map_err(|error| match error.kind() {
        Kind::NoReplica | Kind::Forbidden | Kind::AccessDenied | Kind::Lost => {
            Exit::NoDaemon.because(error.to_string())
        }
        _ => error.into(),
    })?;
    Ok(token)
}
