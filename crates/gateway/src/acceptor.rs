//! Accepts connections and takes slots for them.

use std::iter;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::activity::Activity;
use crate::app_state::{AppState, ConnectionGuard};
use crate::metrics::RefusalReason;
use crate::phase::Phase;
use crate::reservation::{HandshakeSlot, Reservation};
use crate::{connection, plain, proxy_header};

/// An accepted client.
pub struct Accepted {
    pub stream: TcpStream,
    /// Its address; that of the PROXY header, if there is one.
    pub from: SocketAddr,
    pub guard: Arc<ConnectionGuard>,
}

/// The kind of listener that a connection has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ListenerKind {
    Tls,
    Plain,
}

/// Connections that have arrived are accepted after draining begins: for so long in all, and so long for the next.
const LAST_ACCEPTS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(20));

/// Limit on the last accepts, above the backlog: a flood of connections does not keep the socket open.
const MOST_LAST_ACCEPTS: usize = 1 << 16;

impl AppState {
    /// Accepts connections until the end.
    pub async fn listen(self: Arc<Self>, kind: ListenerKind, listener: TcpListener) {
        let mut ends = pin!(self.phases.reach(Phase::Draining));
        loop {
            let accepted = tokio::select! {
                () = &mut ends => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => self.accept(kind, stream, from),
                // For example, the system has no descriptors left. Try again later.
                Err(error) => {
                    tracing::warn!(%error, "a connection to the gateway was not accepted");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
        let (all, next) = LAST_ACCEPTS;
        let last = Instant::now() + all;
        while let Ok(Ok((stream, from))) =
            timeout_at(last.min(Instant::now() + next), listener.accept()).await
        {
            self.accept(kind, stream, from);
        }
        // Connections that have arrived since would be reset with the socket.
        let Ok(listener) = listener.into_std() else {
            return;
        };
        for (stream, from) in iter::from_fn(|| listener.accept().ok()).take(MOST_LAST_ACCEPTS) {
            let stream = stream
                .set_nonblocking(true)
                .and_then(|()| TcpStream::from_std(stream));
            if let Ok(stream) = stream {
                self.accept(kind, stream, from);
            }
        }
    }

    /// Reserves slots for a connection, and serves it. If there are none it is closed before it has cost anything.
    fn accept(self: &Arc<Self>, kind: ListenerKind, stream: TcpStream, from: SocketAddr) {
        let reserved = match Reservation::new(self, kind) {
            Ok(reserved) => reserved,
            Err(why) => return self.metrics.refused(why),
        };
        let app = Arc::clone(self);
        tokio::spawn(async move {
            let mut stream = stream;
            let served = match app.admit(reserved, kind, &mut stream, from).await {
                Ok((from, guard, slot)) => {
                    let accepted = Accepted {
                        stream,
                        from,
                        guard,
                    };
                    match slot {
                        Some(slot) => connection::serve(&app, accepted, slot).await,
                        None => plain::serve(&app, accepted).await,
                    }
                }
                // The metric counts before the connection is closed.
                Err(why) => return app.metrics.refused(why),
            };
            if let Err(why) = served {
                app.metrics.refused(why);
            }
        });
    }

    /// Finds the client's address, and takes all slots for it.
    async fn admit(
        &self,
        reserved: Reservation,
        kind: ListenerKind,
        stream: &mut TcpStream,
        from: SocketAddr,
    ) -> Result<(SocketAddr, Arc<ConnectionGuard>, Option<HandshakeSlot>), RefusalReason> {
        let counted = self.metrics.connection();
        let client = proxy_header::client(&self.section, stream, from);
        let client = timeout(self.section.handshake_timeout, client).await;
        let from = client.map_err(|_| RefusalReason::Slow)??;
        let activity = Activity::new();
        let (slot, handshake) = reserved.complete(self, from.ip(), &activity, kind).await?;
        activity.begin();
        let guard = ConnectionGuard::new(counted, slot, activity);
        Ok((from, Arc::new(guard), handshake))
    }
}
