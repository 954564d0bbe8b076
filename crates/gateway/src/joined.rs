//! Two connections that are one from now on: whatever comes from one goes to the other.

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio_util::io::{InspectReader, InspectWriter};

use crate::house::House;
use crate::pace::Pace;
use crate::phase::Phase;

/// Passes everything on until both have ended, nothing has come from either for `tunnel_timeout`, or the gateway
/// itself ends.
pub async fn join<Client, Backend>(house: &House, client: Client, mut backend: Backend)
where
    Client: AsyncRead + AsyncWrite + Unpin,
    Backend: AsyncRead + AsyncWrite + Unpin,
{
    let pace = Pace::new();
    let moved = |_: &[u8]| pace.moved();
    let mut client = InspectWriter::new(InspectReader::new(client, moved), moved);
    tokio::select! {
        biased;
        // How it ends is the affair of the two.
        _ = copy_bidirectional(&mut client, &mut backend) => {}
        () = pace.rest(house.section.tunnel_timeout) => {}
        () = house.phases.reach(Phase::Closing) => {}
    }
}
