//! Relays bytes between two connections.

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio_util::io::{InspectReader, InspectWriter};

use crate::app_state::AppState;
use crate::idle_timer::IdleTimer;
use crate::phase::Phase;

/// Relays until both have ended, neither has sent anything for `tunnel_timeout`, or the gateway ends.
pub async fn relay<Client, Backend>(app: &AppState, client: Client, mut backend: Backend)
where
    Client: AsyncRead + AsyncWrite + Unpin,
    Backend: AsyncRead + AsyncWrite + Unpin,
{
    let idle_timer = IdleTimer::new();
    let moved = |_: &[u8]| idle_timer.touch();
    let mut client = InspectWriter::new(InspectReader::new(client, moved), moved);
    tokio::select! {
        biased;
        // It does not matter how the two end.
        _ = copy_bidirectional(&mut client, &mut backend) => {}
        () = idle_timer.idle(app.section.tunnel_timeout) => {}
        () = app.phases.reach(Phase::Closing) => {}
    }
}
