//! Whether the other host is alive: asked each second on a connection of its own, which no work delays.

use std::time::Duration;

use hsmux_pool::stamp::Stamp;
use hsmux_token::{Error, Result};
use hsmux_wire::Call;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};

use crate::link::Link;
use crate::stream::ask;

/// Between two questions.
const BEAT: Duration = Duration::from_secs(1);

/// An other end that has not answered for so long is taken for dead.
const DEAD_AFTER: Duration = Duration::from_secs(5);

/// Goes on for as long as the other host answers and is to be believed; says why no longer.
pub async fn watch(over: &mut (impl AsyncRead + AsyncWrite + Unpin), link: &Link) -> Error {
    let mut seen = link.stamp.clone();
    let nothing = Call::Execute(Vec::new());
    loop {
        sleep(BEAT).await;
        let asked = timeout(DEAD_AFTER, ask(over, link.version, &nothing));
        match asked.await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return error,
            Err(_) => {
                let message = format!("has not answered for {} s", DEAD_AFTER.as_secs());
                return Error::lost(message);
            }
        }
        if let Err(error) = still_believed(link, &mut seen) {
            return error;
        }
    }
}

/// Reads the files again when they have changed. With other ones this host shows itself anew.
fn still_believed(link: &Link, seen: &mut Stamp) -> Result<()> {
    let now = Stamp::of(link.options.identity.files());
    if now == *seen {
        return Ok(());
    }
    match link.look_again() {
        Ok(()) => *seen = now,
        // A file that is being written is read again a second later.
        Err(error) if error.kind() == hsmux_token::Kind::Environment => {
            tracing::warn!(%error, "files of this host are as they were");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
