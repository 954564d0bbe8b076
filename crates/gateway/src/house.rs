//! State that all connections share, and the loop that accepts them.

use std::future::pending;
use std::iter;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::ticket_keys::Keys;
use arc_swap::ArcSwap;
use boring::ssl::SslContext;
use hsmux_config::GatewaySection;
use hsmux_pool::Pool;
use hsmux_service::Daemon;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::activity::Activity;
use crate::files::Files;
use crate::memory::Memory;
use crate::metrics::{Held, Metrics, Refused};
use crate::phase::{Phase, Phases};
use crate::reservation::{ConnectionSlot, HandshakeSlot, Reservation};
use crate::revocation::Shown;
use crate::signatures::Signatures;
use crate::sites::Sites;
use crate::source::SourceSlots;
use crate::{connection, http, plain, proxy_header};

/// State that all connections share.
pub struct House {
    pub section: GatewaySection,
    pub pool: Arc<Pool>,
    pub daemon: Arc<Daemon>,
    pub metrics: Arc<Metrics>,
    pub signatures: Arc<Signatures>,
    pub sites: Arc<ArcSwap<Sites>>,
    /// Notified when the sites have changed or a list of revoked certificates has expired.
    pub changes: watch::Sender<()>,
    pub front: SslContext,
    /// The first port that listens for TLS.
    pub port: u16,
    /// Ticket keys that other hosts share.
    pub tickets: Option<Keys>,
    /// Errors of ACME's challenges that were logged.
    pub trouble: plain::Trouble,
    /// Slots for connections, and for those whose handshake is under way.
    pub connections: Arc<Semaphore>,
    pub handshakes: Arc<Semaphore>,
    /// Slots for connections that wait until another one has ended.
    pub waiting: Arc<Semaphore>,
    /// Limits per source.
    pub source_connections: Arc<SourceSlots>,
    pub source_handshakes: Arc<SourceSlots>,
    /// Files that connections and backends may open.
    pub files: Files,
    /// Memory that connections may hold.
    pub memory: Arc<Memory>,
    /// Cache of short files from the sites' folders.
    pub kept: Arc<http::Kept>,
    /// Blocking work on those folders.
    pub reads: http::FolderReads,
    /// Phase of the gateway's shutdown.
    pub phases: Phases,
}

/// Held by a connection until it has ended, also as a tunnel.
pub struct Place {
    _counted: Held,
    _slot: ConnectionSlot,
    pub activity: Arc<Activity>,
    /// The client's certificate, if it has presented one.
    pub shown: OnceLock<Shown>,
}

/// An accepted client.
pub struct Accepted {
    pub stream: TcpStream,
    /// Its address; that of the PROXY header, if there is one.
    pub from: SocketAddr,
    pub place: Arc<Place>,
}

impl Place {
    /// Returns once the client's certificate is no longer accepted; never, if there is none.
    pub async fn refused(&self, house: &House) {
        match self.shown.get() {
            Some(shown) => shown.refused(house).await,
            None => pending().await,
        }
    }
}

/// The kind of listener that a connection has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Door {
    Tls,
    Plain,
}

/// Connections that have arrived are accepted after draining begins: for so long in all, and so long for the next.
const LAST_CALL: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(20));

/// Limit on the last accepts, above the backlog: a flood of connections does not keep the socket open.
const MOST_AT_LAST: usize = 1 << 16;

impl House {
    /// Accepts connections until the end.
    pub async fn listen(self: Arc<Self>, door: Door, listener: TcpListener) {
        let mut ends = pin!(self.phases.reach(Phase::Draining));
        loop {
            let accepted = tokio::select! {
                () = &mut ends => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => self.take_in(door, stream, from),
                // For example, the system has no descriptors left. Try again later.
                Err(error) => {
                    tracing::warn!(%error, "a connection to the gateway was not accepted");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
        let (all, next) = LAST_CALL;
        let last = Instant::now() + all;
        while let Ok(Ok((stream, from))) =
            timeout_at(last.min(Instant::now() + next), listener.accept()).await
        {
            self.take_in(door, stream, from);
        }
        // Connections that have arrived since would be reset with the socket.
        let Ok(listener) = listener.into_std() else {
            return;
        };
        for (stream, from) in iter::from_fn(|| listener.accept().ok()).take(MOST_AT_LAST) {
            let stream = stream
                .set_nonblocking(true)
                .and_then(|()| TcpStream::from_std(stream));
            if let Ok(stream) = stream {
                self.take_in(door, stream, from);
            }
        }
    }

    /// Reserves slots for a connection, and serves it. If there are none it is closed before it has cost anything.
    fn take_in(self: &Arc<Self>, door: Door, stream: TcpStream, from: SocketAddr) {
        let reserved = match Reservation::new(self, door) {
            Ok(reserved) => reserved,
            Err(why) => return self.metrics.refused(why),
        };
        let house = Arc::clone(self);
        tokio::spawn(async move {
            let mut stream = stream;
            let served = match house.accept(reserved, door, &mut stream, from).await {
                Ok((from, place, slot)) => {
                    let accepted = Accepted {
                        stream,
                        from,
                        place,
                    };
                    match slot {
                        Some(slot) => connection::serve(&house, accepted, slot).await,
                        None => plain::serve(&house, accepted).await,
                    }
                }
                // The metric counts before the connection is closed.
                Err(why) => return house.metrics.refused(why),
            };
            if let Err(why) = served {
                house.metrics.refused(why);
            }
        });
    }

    /// Finds the client's address, and takes all slots for it.
    async fn accept(
        &self,
        reserved: Reservation,
        door: Door,
        stream: &mut TcpStream,
        from: SocketAddr,
    ) -> Result<(SocketAddr, Arc<Place>, Option<HandshakeSlot>), Refused> {
        let counted = self.metrics.connection();
        let client = proxy_header::client(&self.section, stream, from);
        let client = timeout(self.section.handshake_timeout, client).await;
        let from = client.map_err(|_| Refused::Slow)??;
        let activity = Activity::new();
        let (slot, handshake) = reserved.complete(self, from.ip(), &activity, door).await?;
        activity.begin();
        let place = Arc::new(Place {
            _counted: counted,
            _slot: slot,
            activity,
            shown: OnceLock::new(),
        });
        Ok((from, place, handshake))
    }
}

/// A request may be on its way when draining begins. hyper would close an idle connection at once.
const FAREWELL: Duration = Duration::from_millis(500);

impl House {
    /// Returns when connections have to end. Requests under way are still answered.
    pub async fn farewell(&self) {
        self.phases.reach(Phase::Draining).await;
        sleep(FAREWELL).await;
    }
}
