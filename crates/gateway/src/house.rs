//! What all connections share, and how many there may be.

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

/// What all connections share.
pub struct House {
    pub section: GatewaySection,
    pub pool: Arc<Pool>,
    pub daemon: Arc<Daemon>,
    pub metrics: Arc<Metrics>,
    pub signatures: Arc<Signatures>,
    pub sites: Arc<ArcSwap<Sites>>,
    /// The sites are others, or a list of revoked certificates has expired.
    pub changes: watch::Sender<()>,
    pub front: SslContext,
    /// Where it listens for TLS, or first does.
    pub port: u16,
    /// Keys of tickets that other hosts have, too.
    pub tickets: Option<Keys>,
    /// What was wrong with ACME's challenges.
    pub trouble: plain::Trouble,
    /// Places for connections, and for those of them whose handshake is under way.
    pub connections: Arc<Semaphore>,
    pub handshakes: Arc<Semaphore>,
    /// And for those that wait until another one has given way.
    pub waiting: Arc<Semaphore>,
    /// The same of one source.
    pub source_connections: Arc<SourceSlots>,
    pub source_handshakes: Arc<SourceSlots>,
    /// What they and the servers behind take of the process.
    pub files: Files,
    /// What they hold of its memory.
    pub memory: Arc<Memory>,
    /// Short files of the sites' folders.
    pub kept: Arc<http::Kept>,
    /// Work on files of those folders.
    pub reads: http::FolderReads,
    /// How far it has come to its end.
    pub phases: Phases,
}

/// What a connection holds until it has ended, whatever it has become.
pub struct Place {
    _counted: Held,
    _slot: ConnectionSlot,
    pub activity: Arc<Activity>,
    /// The client's certificate, if it has shown one.
    pub shown: OnceLock<Shown>,
}

/// A client that is served from now on.
pub struct Accepted {
    pub stream: TcpStream,
    /// Where it is, as the PROXY header says, if there is one.
    pub from: SocketAddr,
    pub place: Arc<Place>,
}

impl Place {
    /// Ends once the client's certificate is believed no more; never, if it has shown none.
    pub async fn refused(&self, house: &House) {
        match self.shown.get() {
            Some(shown) => shown.refused(house).await,
            None => pending().await,
        }
    }
}

/// What a connection has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Door {
    Tls,
    Plain,
}

/// At the end: who has connected by then is still accepted. So long for all, and so long for the next.
const LAST_CALL: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(20));

/// More than can wait to be accepted: a flood of connections does not keep the socket open.
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
                // The system has no more descriptors, for example: a little later again.
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
        // Those who have come since then would be cut off with the socket.
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

    /// Finds a place for a connection; where there is none it is closed before it has cost anything.
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
                // Before it is closed.
                Err(why) => return house.metrics.refused(why),
            };
            if let Err(why) = served {
                house.metrics.refused(why);
            }
        });
    }

    /// Finds out who the client is, and takes what it needs.
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

/// A request that is on its way when the gateway ends is still served: hyper closes at once what is idle.
const FAREWELL: Duration = Duration::from_millis(500);

impl House {
    /// Comes when a connection has to end, once what is under way has been answered.
    pub async fn farewell(&self) {
        self.phases.reach(Phase::Draining).await;
        sleep(FAREWELL).await;
    }
}
