//! What all connections share, and how many there may be.

use std::future::pending;
use std::iter;
use std::net::{IpAddr, SocketAddr};
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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};

use crate::files::{self, Files};
use crate::memory::Memory;
use crate::metrics::{Held, Metrics, Refused};
use crate::phase::{Phase, Phases};
use crate::revocation::Shown;
use crate::signatures::Signatures;
use crate::sites::Sites;
use crate::source::{Counted, SourceCounts};
use crate::{connection, http, plain};

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
    /// The same of one source.
    pub source_connections: Arc<SourceCounts>,
    pub source_handshakes: Arc<SourceCounts>,
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
    _one: OwnedSemaphorePermit,
    _file: files::Held,
    source: OnceLock<Counted>,
    /// The client's certificate, if it has shown one.
    pub shown: OnceLock<Shown>,
}

impl Place {
    /// The connection is of this client; an error if its source has as many as it may.
    pub fn is_of(&self, client: IpAddr, house: &House) -> Result<(), Refused> {
        let counted = house.source_connections.count(client);
        let _ = self.source.set(counted.ok_or(Refused::Source)?);
        Ok(())
    }

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
        let Ok(place) = Arc::clone(&self.connections).try_acquire_owned() else {
            return self.metrics.refused(Refused::Connections);
        };
        let turn = || Arc::clone(&self.handshakes).try_acquire_owned();
        let Ok(turn) = (door == Door::Tls).then(turn).transpose() else {
            return self.metrics.refused(Refused::Handshakes);
        };
        let Some(file) = self.files.client() else {
            return self.metrics.refused(Refused::Files);
        };
        let house = Arc::clone(self);
        tokio::spawn(async move {
            let place = Arc::new(Place {
                _counted: house.metrics.connection(),
                _one: place,
                _file: file,
                source: OnceLock::new(),
                shown: OnceLock::new(),
            });
            let served = match turn {
                Some(turn) => {
                    connection::serve(&house, stream, from, turn, Arc::clone(&place)).await
                }
                None => plain::serve(&house, stream, from, &place).await,
            };
            if let Err(why) = served {
                house.metrics.refused(why);
            }
        });
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
