//! Relays bytes between two connections.

use hsmux_edge::access_log::Transfer;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio_util::io::{InspectReader, InspectWriter};

use crate::app_state::AppState;
use crate::idle_timer::IdleTimer;
use crate::phase::Phase;

/// Relays until both have ended, neither has sent anything for `tunnel_timeout`, or the gateway ends. `transfer`
/// counts the bytes of both.
pub async fn relay<Client, Backend>(
    app: &AppState,
    client: Client,
    mut backend: Backend,
    transfer: &Transfer,
) where
    Client: AsyncRead + AsyncWrite + Unpin,
    Backend: AsyncRead + AsyncWrite + Unpin,
{
    let idle_timer = IdleTimer::new();
    let received = |bytes: &[u8]| {
        idle_timer.touch();
        transfer.add_received(bytes.len());
    };
    let sent = |bytes: &[u8]| {
        idle_timer.touch();
        transfer.add_sent(bytes.len());
    };
    let mut client = InspectWriter::new(InspectReader::new(client, received), sent);
    tokio::select! {
        biased;
        // It does not matter how the two end.
        _ = copy_bidirectional(&mut client, &mut backend) => {}
        () = idle_timer.idle(app.section.tunnel_timeout) => {}
        () = app.phases.reach(Phase::Closing) => {}
    }
}
