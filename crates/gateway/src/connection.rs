//! One connection: from its first byte to the end of what it carries.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use boring::ssl::{Ssl, SslVersion};
use hsmux_pool::config::Behind;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, timeout};
use tokio_boring::{SslStream, SslStreamBuilder};
use tokio_io_timeout::TimeoutStream;

use crate::house::House;
use crate::metrics::Refused;
use crate::signer::{PROGRESS, Progress};
use crate::sites::Served;
use crate::tls::SITE;
use crate::{http, proxy_header, tunnel};

/// A client whose handshake is done.
pub struct Client {
    pub stream: Patient,
    pub served: Arc<Served>,
    /// Where it is, as the PROXY header says, if there is one.
    pub from: SocketAddr,
    /// What it has connected to.
    pub to: SocketAddr,
}

/// Its stream, which ends where the client does not take what it is sent.
pub type Patient = Pin<Box<TimeoutStream<SslStream<TcpStream>>>>;

/// What somebody reads who has spoken HTTP without TLS.
const PLAIN: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\
    Content-Length: 43\r\n\r\nThis port speaks TLS: use https:// instead.";

/// Serves a connection that has been accepted. `turn` is its place among the handshakes.
pub async fn serve(
    house: &Arc<House>,
    stream: TcpStream,
    from: SocketAddr,
    turn: OwnedSemaphorePermit,
) -> Result<(), Refused> {
    let shaken = {
        let _turn = turn;
        let _held = house.metrics.handshaking();
        shake(house, stream, from).await
    };
    let client = shaken?;
    if matches!(client.served.site.behind, Behind::Tcp(..)) {
        return tunnel::serve(house, client).await;
    }
    http::serve(house, client).await;
    Ok(())
}

async fn shake(
    house: &House,
    mut stream: TcpStream,
    mut from: SocketAddr,
) -> Result<Client, Refused> {
    let patience = house.section.handshake_timeout;
    let to = stream.local_addr().map_err(|_| Refused::Tls)?;
    let begin = async {
        if house.section.proxy_protocol {
            let named = proxy_header::read(&mut stream).await;
            from = named.map_err(|_| Refused::Proxy)?.unwrap_or(from);
        }
        // A client that says nothing costs no more than its socket.
        first_byte(&stream).await.map_err(|_| Refused::Tls)
    };
    let first = timeout(patience, begin)
        .await
        .map_err(|_| Refused::Slow)??;
    if first.is_ascii_alphabetic() {
        let _ = timeout(patience, answer_plain(&mut stream)).await;
        return Err(Refused::PlainHttp);
    }
    let progress = Arc::new(Progress::default());
    let mut ssl = Ssl::new(&house.front).map_err(|_| Refused::Tls)?;
    ssl.set_ex_data(*PROGRESS, Arc::clone(&progress));
    let handshake = SslStreamBuilder::new(ssl, stream).accept();
    let shaken = unless_slow(handshake, patience, &progress).await;
    let stream = shaken.ok_or(Refused::Slow)?.map_err(|_| {
        if progress.has_failed() {
            Refused::Unsigned
        } else {
            Refused::Tls
        }
    })?;
    let ssl = stream.ssl();
    let version = match ssl.version2() {
        Some(SslVersion::TLS1_3) => "1.3",
        _ => "1.2",
    };
    house.metrics.handshake(version, ssl.session_reused());
    let served = ssl.ex_data(*SITE).cloned().ok_or(Refused::Tls)?;
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(house.section.idle_timeout));
    Ok(Client {
        stream: Box::pin(stream),
        served,
        from,
        to,
    })
}

async fn first_byte(stream: &TcpStream) -> io::Result<u8> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first[0]),
    }
}

async fn answer_plain(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN).await?;
    stream.shutdown().await?;
    // What was not read would take the answer away with it.
    tokio::io::copy(stream, &mut tokio::io::sink())
        .await
        .map(drop)
}

/// `None`: the client has taken too long. What its signature takes is not its own time.
async fn unless_slow<T>(
    handshake: impl Future<Output = T>,
    patience: Duration,
    progress: &Progress,
) -> Option<T> {
    let mut handshake = std::pin::pin!(handshake);
    loop {
        let signing = progress.is_signing();
        tokio::select! {
            shaken = handshake.as_mut() => return Some(shaken),
            // A signature has a deadline of its own.
            () = sleep(patience) => if !signing && !progress.is_signing() { return None },
        }
    }
}
