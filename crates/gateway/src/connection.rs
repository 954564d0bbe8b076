//! One connection: from its first byte to the end of what it carries.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use boring::ssl::{Ssl, SslVersion};
use hsmux_config::Behind;
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

use crate::house::{Accepted, House};
use crate::metrics::Refused;
use crate::reservation::HandshakeSlot;
use crate::revocation::Shown;
use crate::signer::{PROGRESS, Progress};
use crate::sites::Served;
use crate::socket::{Presence, Socket};
use crate::tls::SITE;
use crate::tls_stream::TlsStream;
use crate::{http, tunnel};

/// A client whose handshake is done.
pub struct Client {
    pub stream: Patient,
    pub served: Arc<Served>,
    /// Where it is, as the PROXY header says, if there is one.
    pub from: SocketAddr,
}

/// Its stream, which ends where the client does not take what it is sent.
pub type Patient = Pin<Box<TimeoutStream<TlsStream>>>;

/// What somebody reads who has spoken HTTP without TLS.
const PLAIN: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\
    Content-Length: 43\r\n\r\nThis port speaks TLS: use https:// instead.";

/// Serves a connection that has been accepted, whose handshake holds this slot.
pub async fn serve(
    house: &Arc<House>,
    accepted: Accepted,
    slot: HandshakeSlot,
) -> Result<(), Refused> {
    let place = Arc::clone(&accepted.place);
    let shaken = {
        let _slot = slot;
        let _held = house.metrics.handshaking();
        tokio::select! {
            shaken = shake(house, accepted) => shaken,
            () = place.activity.evicted() => return Ok(()),
        }
    };
    let client = shaken?;
    let site = &client.served.site.names[0];
    if let Some(shown) = Shown::by(client.stream.get_ref().ssl(), site) {
        let _ = place.shown.set(shown);
    }
    let served = async {
        if matches!(client.served.site.behind, Behind::Tcp(..)) {
            place.activity.keep();
            return tunnel::serve(house, client).await;
        }
        http::serve(house, client, Arc::clone(&place)).await;
        Ok(())
    };
    tokio::select! {
        served = served => served,
        () = place.refused(house) => Ok(()),
    }
}

async fn shake(house: &House, accepted: Accepted) -> Result<Client, Refused> {
    let Accepted {
        stream,
        from,
        place,
    } = accepted;
    let patience = house.section.handshake_timeout;
    // A client that says nothing costs no more than its socket.
    let (mut socket, client) = Socket::new(stream);
    let first = timeout(patience, socket.first()).await;
    let first = first.map_err(|_| Refused::Slow)?;
    let first = first.map_err(|_| Refused::Tls)?;
    if first.is_ascii_alphabetic() {
        let _ = timeout(patience, answer_plain(&mut socket)).await;
        return Err(Refused::PlainHttp);
    }
    let progress = Arc::new(Progress::of(from));
    place.activity.shakes(&progress);
    let mut ssl = Ssl::new(&house.front).map_err(|_| Refused::Tls)?;
    ssl.set_ex_data(*PROGRESS, Arc::clone(&progress));
    let handshake = TlsStream::accept(ssl, socket);
    let shaken = unless_slow_or_gone(handshake, client, patience, &progress).await;
    let mut stream = shaken?.ok_or_else(|| {
        if progress.is_refused() {
            Refused::Busy
        } else if progress.has_failed() {
            Refused::Unsigned
        } else {
            Refused::Tls
        }
    })?;
    if progress.is_signed() {
        house.signatures.completed(from.ip());
    }
    let ssl = stream.ssl();
    let version = match ssl.version2() {
        Some(SslVersion::TLS1_3) => "1.3",
        _ => "1.2",
    };
    house.metrics.handshake(version, ssl.session_reused());
    let served = ssl.ex_data(*SITE).cloned().ok_or(Refused::Tls)?;
    stream.greet();
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(house.section.idle_timeout));
    Ok(Client {
        stream: Box::pin(stream),
        served,
        from,
    })
}

async fn answer_plain(stream: &mut Socket) -> io::Result<()> {
    stream.write_all(PLAIN).await?;
    stream.shutdown().await?;
    // What was not read would take the answer away with it.
    tokio::io::copy(stream, &mut tokio::io::sink())
        .await
        .map(drop)
}

/// What its signature takes is not the client's own time; but the token does not work for one that has gone away.
async fn unless_slow_or_gone<T>(
    handshake: impl Future<Output = T>,
    client: Presence,
    patience: Duration,
    progress: &Progress,
) -> Result<T, Refused> {
    let mut handshake = pin!(handshake);
    let gone = async {
        // Looked at whenever the handshake has moved, which comes first.
        poll_fn(|_| {
            if progress.is_signing() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        sleep(A_WHILE).await;
        client.hung_up().await;
    };
    let mut gone = pin!(gone);
    loop {
        let signing = progress.is_signing();
        tokio::select! {
            biased;
            shaken = handshake.as_mut() => return Ok(shaken),
            () = gone.as_mut() => return Err(Refused::Tls),
            // A signature has a deadline of its own.
            () = sleep(patience) => if !signing && !progress.is_signing() { return Err(Refused::Slow) },
        }
    }
}

/// Fast tokens sign before anybody is looked after.
const A_WHILE: Duration = Duration::from_millis(20);
