//! One connection of TLS, from its first byte to its end.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use boring::ssl::{Ssl, SslVersion};
use hsmux_config::SiteBackends;
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

use crate::acceptor::Accepted;
use crate::access::AccessClient;
use crate::app_state::AppState;
use crate::client_chain::ClientChain;
use crate::metrics::RefusalReason;
use crate::reservation::HandshakeSlot;
use crate::signer::{HandshakeProgress, PROGRESS};
use crate::sites::ServedSite;
use crate::socket::{HangupWatch, Socket};
use crate::tls::SITE;
use crate::tls_stream::TlsStream;
use crate::{http, tunnel};

/// A client after its handshake.
pub struct TlsClient {
    pub stream: ClientTlsStream,
    pub served: Arc<ServedSite>,
    /// Its address; that of the PROXY header, if there is one.
    pub from: SocketAddr,
    /// The same and its TLS, for the access log.
    pub access: Arc<AccessClient>,
}

/// A client's stream, which fails if the client does not take what is sent.
pub type ClientTlsStream = Pin<Box<TimeoutStream<TlsStream>>>;

/// The answer to HTTP without TLS.
const PLAIN: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\
    Content-Length: 43\r\n\r\nThis port speaks TLS: use https:// instead.";

/// Serves an accepted connection, whose handshake holds this slot.
pub async fn serve(
    app: &Arc<AppState>,
    accepted: Accepted,
    slot: HandshakeSlot,
) -> Result<(), RefusalReason> {
    let guard = Arc::clone(&accepted.guard);
    let changes = app.changes.subscribe();
    let shaken = {
        let _slot = slot;
        let _held = app.metrics.handshaking();
        tokio::select! {
            shaken = handshake(app, accepted) => shaken,
            () = guard.activity.evicted() => return Ok(()),
        }
    };
    let client = shaken?;
    let ssl = client.stream.get_ref().ssl();
    let client_chain = ClientChain::new(ssl, &client.served, changes);
    let _ = guard.client_chain.set(client_chain);
    let served = async {
        if matches!(client.served.site.backends, SiteBackends::Tcp(..)) {
            guard.activity.mark_busy();
            return tunnel::serve(app, client).await;
        }
        http::serve(app, client, Arc::clone(&guard)).await;
        Ok(())
    };
    tokio::select! {
        biased;
        // First, so that no request is served once this task knows of a change that refuses its client.
        () = guard.until_refused(app) => Ok(()),
        served = served => served,
    }
}

async fn handshake(app: &AppState, accepted: Accepted) -> Result<TlsClient, RefusalReason> {
    let Accepted {
        stream,
        from,
        guard,
    } = accepted;
    let patience = app.section.handshake_timeout;
    // A client that sends nothing costs no more than its socket.
    let (mut socket, client) = Socket::new(stream);
    let first = timeout(patience, socket.first_byte()).await;
    let first = first.map_err(|_| RefusalReason::Slow)?;
    let first = first.map_err(|_| RefusalReason::Tls)?;
    if first.is_ascii_alphabetic() {
        let _ = timeout(patience, answer_plain(&mut socket)).await;
        return Err(RefusalReason::PlainHttp);
    }
    let progress = Arc::new(HandshakeProgress::of(from));
    guard.activity.set_handshake(&progress);
    let mut ssl = Ssl::new(&app.front).map_err(|_| RefusalReason::Tls)?;
    ssl.set_ex_data(*PROGRESS, Arc::clone(&progress));
    let handshake = TlsStream::accept(ssl, socket);
    let shaken = unless_slow_or_gone(handshake, client, patience, &progress).await;
    let mut stream = shaken?.ok_or_else(|| {
        if progress.is_refused() {
            RefusalReason::Busy
        } else if progress.has_failed() {
            RefusalReason::Unsigned
        } else {
            RefusalReason::Tls
        }
    })?;
    if progress.is_signed() {
        app.signatures.completed(from.ip());
    }
    let ssl = stream.ssl();
    let version = match ssl.version2() {
        Some(SslVersion::TLS1_3) => "1.3",
        _ => "1.2",
    };
    app.metrics.handshake(version, ssl.session_reused());
    let served = ssl.ex_data(*SITE).cloned().ok_or(RefusalReason::Tls)?;
    let access = Arc::new(AccessClient::of_tls(from, &served, version, ssl));
    stream.acknowledge_handshake();
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(app.section.idle_timeout));
    Ok(TlsClient {
        stream: Box::pin(stream),
        served,
        from,
        access,
    })
}

async fn answer_plain(stream: &mut Socket) -> io::Result<()> {
    stream.write_all(PLAIN).await?;
    stream.shutdown().await?;
    // If unread bytes were left, closing would discard the answer.
    tokio::io::copy(stream, &mut tokio::io::sink())
        .await
        .map(drop)
}

/// Runs a handshake with a time limit, which does not run during the signature. A handshake is dropped if its client
/// goes away, so that no token signs for it.
async fn unless_slow_or_gone<T>(
    handshake: impl Future<Output = T>,
    client: HangupWatch,
    patience: Duration,
    progress: &HandshakeProgress,
) -> Result<T, RefusalReason> {
    let mut handshake = pin!(handshake);
    let gone = async {
        // Polled after each step of the handshake, which is polled first.
        poll_fn(|_| {
            if progress.is_signing() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        client.hung_up().await;
    };
    let mut gone = pin!(gone);
    loop {
        let signing = progress.is_signing();
        tokio::select! {
            biased;
            shaken = handshake.as_mut() => return Ok(shaken),
            () = gone.as_mut() => return Err(RefusalReason::Tls),
            // A signature has its own deadline.
            () = sleep(patience) => if !signing && !progress.is_signing() { return Err(RefusalReason::Slow) },
        }
    }
}
