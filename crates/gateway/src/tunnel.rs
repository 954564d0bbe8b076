//! Anything inside TLS, to a backend as it is.

use hsmux_pool::config::Behind;
use tokio::io::{AsyncWriteExt, copy_bidirectional};

use crate::backend::{Line, Unreached};
use crate::connection::Client;
use crate::house::House;
use crate::metrics::Refused;
use crate::proxy_header;

/// Connects to one of the site's backends and passes everything on until one side has ended and the other, too.
pub async fn serve(house: &House, mut client: Client) -> Result<(), Refused> {
    let mut backend = connect(house, &client).await?;
    if let Behind::Tcp(_, Some(version)) = client.served.site.behind {
        let header = proxy_header::write(version, client.from, client.to);
        // One that has gone by now says so below.
        let _ = backend.write_all(&header).await;
    }
    let mut ending = house.closing.clone();
    tokio::select! {
        // How it ends is the affair of the two.
        _ = copy_bidirectional(&mut client.stream, &mut backend) => {}
        () = crate::house::said(&mut ending) => {}
    }
    Ok(())
}

async fn connect(house: &House, client: &Client) -> Result<Line, Refused> {
    let served = &client.served;
    for backend in served.backends.in_turn() {
        let patience = served.site.backend_timeout;
        match backend.connect(patience, &house.files).await {
            Ok(line) => return Ok(line),
            Err(Unreached::NoFile) => return Err(Refused::Files),
            Err(Unreached::Down) => {}
        }
    }
    Err(Refused::Backend)
}
