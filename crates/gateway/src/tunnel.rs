//! Anything inside TLS, to a backend as it is.

use hsmux_pool::config::Behind;
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::connection::Client;
use crate::house::House;
use crate::metrics::Refused;
use crate::proxy_header;

/// Connects to the site's backend and passes everything on until one side has ended and the other, too.
pub async fn serve(house: &House, mut client: Client) -> Result<(), Refused> {
    let site = &client.served.site;
    let Behind::Tcp(at, version) = &site.behind else {
        return Ok(());
    };
    let connect = async {
        let mut backend = TcpStream::connect(at.as_str()).await?;
        backend.set_nodelay(true)?;
        if let Some(version) = version {
            let header = proxy_header::write(*version, client.from, client.to);
            backend.write_all(&header).await?;
        }
        Ok::<_, std::io::Error>(backend)
    };
    let mut backend = match timeout(site.backend_timeout, connect).await {
        Ok(Ok(backend)) => backend,
        Ok(Err(error)) => return Err(lost(at, &error)),
        Err(late) => return Err(lost(at, &late)),
    };
    let mut ending = house.closing.clone();
    tokio::select! {
        // How it ends is the affair of the two.
        _ = copy_bidirectional(&mut client.stream, &mut backend) => {}
        () = crate::house::said(&mut ending) => {}
    }
    Ok(())
}

fn lost(at: &str, error: &dyn std::fmt::Display) -> Refused {
    tracing::warn!("tcp://{at}: {error}");
    Refused::Backend
}
