//! An application of the daemon, as a token: for the command line and its measurements.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::{Batch, Error, Operation, Outcome, Result, Secret, Snapshot, Token, TokenInfo};
use hsmux_wire::{Answer, Call, Client, Endpoint, View};

/// The longest time for the catalogue or a login.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to one of the daemon's listeners. Operations run on the caller's thread.
pub struct PoolClient {
    client: Client,
    info: Arc<TokenInfo>,
}

impl PoolClient {
    /// Connects, and logs in if a PIN is given, or if the listener needs none.
    pub fn connect(socket: &Path, pin: Option<Secret>) -> Result<Arc<Self>> {
        let client = Client::connect(Endpoint::from(socket), "hsmux")?;
        let needs_pin = client.welcome().is_some_and(|welcome| welcome.pin_login);
        let pin = pin.or_else(|| (!needs_pin).then(Secret::default));
        if let Some(pin) = pin {
            client.call(Call::Login(pin), Instant::now() + PATIENCE)?;
        }
        let info = Arc::new(view(&client)?.info);
        Ok(Arc::new(Self { client, info }))
    }
}

impl Token for PoolClient {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::clone(&self.info)
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        let View { epoch, objects, .. } = view(&self.client)?;
        Ok(Arc::new(Snapshot {
            epoch,
            objects,
            is_partial: false,
        }))
    }

    fn submit(&self, batch: Batch) {
        for request in batch {
            let result = self.client.execute(&request.operation, request.deadline);
            request.done.complete(result);
        }
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        self.client.execute(operation, deadline)
    }
}

fn view(client: &Client) -> Result<View> {
    let call = Call::Catalogue { known: 0 };
    match client.call(call, Instant::now() + PATIENCE)?.answer {
        Answer::Catalogue(Some(view)) => Ok(view),
        other => Err(Error::protocol(format!(
            "expected the catalogue, got {other:?}"
        ))),
    }
}
