//! Relays any protocol inside TLS to a backend.

use std::sync::Arc;
use std::time::Instant;

use hsmux_config::SiteBackends;
use hyper::StatusCode;
use tokio::io::AsyncWriteExt;

use crate::access::{self, Access};
use crate::app_state::AppState;
use crate::backend::{BackendStream, ConnectError};
use crate::connection::TlsClient;
use crate::metrics::RefusalReason;
use crate::proxy_header;
use crate::relay::relay;

/// Connects to one of the site's backends and relays.
pub async fn serve(app: &AppState, client: TlsClient) -> Result<(), RefusalReason> {
    let mut record = access::of_connection(app, &client.access);
    let mut backend = connect(app, &client, &mut record).await?;
    if let SiteBackends::Tcp(_, Some(version)) = client.served.site.backends {
        let to = client.stream.get_ref().get_ref().local_addr();
        let header = proxy_header::write(version, client.from, to.map_err(|_| RefusalReason::Tls)?);
        // An error shows up again in the relay.
        let _ = backend.write_all(&header).await;
    }
    let transfer = record.as_ref().map(|record| Arc::clone(record.transfer()));
    let transfer = transfer.unwrap_or_default();
    relay(app, client.stream, backend, &transfer).await;
    if let Some(record) = &mut record {
        record.complete();
    }
    Ok(())
}

async fn connect(
    app: &AppState,
    client: &TlsClient,
    record: &mut Access,
) -> Result<BackendStream, RefusalReason> {
    let served = &client.served;
    for backend in served.backends.in_turn() {
        let since = Instant::now();
        let patience = served.site.backend_timeout;
        let connected = backend.connect(patience, &app.files).await;
        if let Some(record) = record {
            let status = match &connected {
                Ok(_) => StatusCode::OK,
                Err(_) => StatusCode::BAD_GATEWAY,
            };
            record.answered(status);
            record.details.used(backend, since);
        }
        match connected {
            Ok(stream) => return Ok(stream),
            Err(ConnectError::NoFile) => return Err(RefusalReason::Files),
            Err(ConnectError::Down) => {}
        }
    }
    Err(RefusalReason::Backend)
}
