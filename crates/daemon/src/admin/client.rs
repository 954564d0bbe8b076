//! The administrator's end of the socket.

use std::path::Path;
use std::time::{Duration, Instant};

use hsmux_config::Config;
use hsmux_token::{Blob, Error, Kind, Result};
use hsmux_wire::{Answer, Call, Client, Endpoint};

use super::{AdminFailure, AdminRequest, AdminResponse};
use crate::lock::StateLock;

/// Making an RSA key on a slow card takes minutes.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// A connection to the daemon's administration.
pub struct AdminClient(Client);

impl AdminClient {
    /// Connects to the administration of a configuration's daemon. If nobody listens there, the error says whether that
    /// daemon runs.
    pub fn of(config: &Config) -> Result<Self> {
        let socket = &config.admin.socket.path;
        Self::connect(socket).map_err(|error| {
            let nobody_listens = error.kind() == Kind::NoReplica;
            let holder = nobody_listens.then(|| StateLock::holder(&config.state));
            let Some(pid) = holder.flatten() else {
                return error;
            };
            let (socket, state) = (socket.display(), config.state.display());
            let message = format!(
                "no process listens at {socket}; the daemon with pid {pid} uses {state}, but not this socket. Wait if it \
                 starts just now. If the socket in the file has changed, restart the daemon: systemctl restart hsmux, \
                 or kill {pid} and hsmux serve"
            );
            Error::pool(Kind::NoReplica, message)
        })
    }

    /// Connects to the administration's socket. [`Kind::NoReplica`]: no process listens there.
    pub fn connect(socket: &Path) -> Result<Self> {
        Client::connect(Endpoint::from(socket), "hsmux").map(Self)
    }

    /// Asks and waits for the answer, as long as it takes.
    pub fn ask(&self, request: &AdminRequest) -> Result<AdminResponse, AdminFailure> {
        let asked = self.call(request)?;
        match asked {
            AdminResponse::Failed(failure) => Err(failure),
            response => Ok(response),
        }
    }

    fn call(&self, request: &AdminRequest) -> Result<AdminResponse> {
        let odd = |e: serde_json::Error| {
            Error::request(
                Kind::Protocol,
                format!("the daemon is of another version: {e}"),
            )
        };
        let json = serde_json::to_vec(request).map_err(odd)?;
        let reply = self
            .0
            .call(Call::Admin(Blob::from(json)), Instant::now() + PATIENCE)?;
        match reply.answer {
            Answer::Admin(json) => serde_json::from_slice(&json).map_err(odd),
            other => Err(Error::protocol(format!(
                "administration answered {other:?}"
            ))),
        }
    }
}
