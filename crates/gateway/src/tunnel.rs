//! Relays any protocol inside TLS to a backend.

use hsmux_config::SiteBackends;
use tokio::io::AsyncWriteExt;

use crate::app_state::AppState;
use crate::backend::{BackendStream, ConnectError};
use crate::connection::TlsClient;
use crate::metrics::RefusalReason;
use crate::proxy_header;
use crate::relay::relay;

/// Connects to one of the site's backends and relays.
pub async fn serve(app: &AppState, client: TlsClient) -> Result<(), RefusalReason> {
    let mut backend = connect(app, &client).await?;
    if let SiteBackends::Tcp(_, Some(version)) = client.served.site.backends {
        let to = client.stream.get_ref().get_ref().local_addr();
        let header = proxy_header::write(version, client.from, to.map_err(|_| RefusalReason::Tls)?);
        // An error shows up again in the relay.
        let _ = backend.write_all(&header).await;
    }
    relay(app, client.stream, backend).await;
    Ok(())
}

async fn connect(app: &AppState, client: &TlsClient) -> Result<BackendStream, RefusalReason> {
    let served = &client.served;
    for backend in served.backends.in_turn() {
        let patience = served.site.backend_timeout;
        match backend.connect(patience, &app.files).await {
            Ok(stream) => return Ok(stream),
            Err(ConnectError::NoFile) => return Err(RefusalReason::Files),
            Err(ConnectError::Down) => {}
        }
    }
    Err(RefusalReason::Backend)
}
