//! The daemon as a member of a pool in this process.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use hsmux_pool::{Care, Connector};
use hsmux_token::fork::Unshared;
use hsmux_token::{Error, Estimate, Kind, ObjectId, Operation, Outcome, Result, Token, TokenInfo};
use hsmux_wire::frame::{Message, decode_reply};
use hsmux_wire::{
    Answer, Call, Connection, ESTIMATED, Greeting, Hello, Item, Link, Reactor, RecentTokens,
    RemoteToken, SPOKEN, ServiceClient, WITHDRAWN, decode,
};

use crate::{Daemon, Queueing};

/// The member's name in messages.
pub(crate) const NAME: &str = "the daemon";

/// How long the daemon may take to answer while a connection to it is made.
const PATIENCE: Duration = Duration::from_secs(10);

/// Limit on connections to the daemon, by where requests wait.
const LANES: u32 = 256;
const LANES_IN_DAEMON: u32 = 2048;

/// More connections than the daemon's queue has places: it refuses requests, or displaces them, by its own rules.
const SPARE_LANES: u32 = 64;

/// Withdrawals that wait to be sent. Requests beyond them run on until their deadline.
const WITHDRAWALS: usize = 4096;

/// Connects to the daemon over the service's link.
pub(crate) struct DaemonConnector {
    daemon: Arc<Daemon>,
    reactor: Arc<Reactor>,
    connected: RecentTokens,
    /// This process's name for the daemon ([`Hello::client`]).
    client: [u8; 16],
    queueing: Queueing,
    /// Requests that wait in the daemon at most.
    queue: u32,
    withdrawals: SyncSender<u64>,
}

impl DaemonConnector {
    /// Connects nothing yet. `queue` is the number of requests that wait in the daemon at most.
    pub fn start(
        daemon: &Arc<Daemon>,
        reactor: &Arc<Reactor>,
        queueing: Queueing,
        queue: u32,
    ) -> Result<Arc<Self>> {
        let mut client = [0; 16];
        getrandom::fill(&mut client)
            .map_err(|e| Error::pool(Kind::Environment, format!("no random bytes: {e}")))?;
        let (withdrawals, withdrawn) = sync_channel(WITHDRAWALS);
        let connector = Arc::new(Self {
            daemon: Arc::clone(daemon),
            reactor: Arc::clone(reactor),
            connected: RecentTokens::default(),
            client,
            queueing,
            queue,
            withdrawals,
        });
        withdraw_in_background(&connector, withdrawn)?;
        Ok(connector)
    }

    /// Estimates for these keys as of now.
    pub fn estimates(&self, keys: &[ObjectId]) -> Result<HashMap<ObjectId, Estimate>> {
        let token = self.newest()?;
        let mut estimates = HashMap::with_capacity(keys.len());
        for keys in keys.chunks(ESTIMATED) {
            let said = token.estimates(keys.to_vec())?;
            estimates.extend(keys.iter().copied().zip(said));
        }
        Ok(estimates)
    }

    /// True if uses of the key take direct connections.
    pub fn is_used_directly(&self, key: &ObjectId) -> bool {
        self.newest().is_ok_and(|token| token.is_used_directly(key))
    }

    /// Ends the direct connections of all keys but these.
    pub fn keep_direct(&self, keys: &[ObjectId]) {
        if let Ok(token) = self.newest() {
            token.keep_direct(keys);
        }
    }

    /// Asks for up to this many direct connections for uses of the key. An error: the daemon grants none.
    pub fn connect_directly(&self, key: ObjectId, count: usize) -> Result<()> {
        let token = self.newest()?;
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            let (stream, version) = self.open()?;
            match ask_within(&stream, version, &Call::HandOver(key), PATIENCE)? {
                Answer::Done => connections.push(stream),
                Answer::Failed(error) if connections.is_empty() => return Err(error),
                _ => break,
            }
        }
        token.use_directly(key, connections)
    }

    /// How many operations the daemon takes at once; 1 if there is no connection.
    pub fn lanes(&self) -> usize {
        let lanes = self.newest().map(|token| token.info().lanes);
        lanes.map_or(1, |lanes| usize::try_from(lanes).unwrap_or(usize::MAX))
    }

    /// Carries out one operation on a connection of its own. Blocks.
    pub fn execute(&self, operation: Operation, deadline: Instant) -> Result<Outcome> {
        let (stream, version) = self.open()?;
        let left = deadline.saturating_duration_since(Instant::now());
        let item = Item {
            operation,
            remaining_us: u64::try_from(left.as_micros()).unwrap_or(u64::MAX),
            behalf: None,
        };
        match ask_within(
            &stream,
            version,
            &Call::Execute(vec![item]),
            left + PATIENCE,
        )? {
            Answer::Results(results) => {
                let result = results.into_iter().next();
                result.unwrap_or_else(|| Err(Error::protocol("an answer without a result")))
            }
            Answer::Failed(error) => Err(error),
            other => Err(Error::protocol(format!("answered {other:?}"))),
        }
    }

    /// The operations that the daemon gets at once.
    fn lanes_for(&self, info: &TokenInfo) -> u32 {
        match self.queueing {
            Queueing::InService => info.lanes.clamp(1, LANES),
            Queueing::InDaemon => self
                .queue
                .saturating_add(info.lanes)
                .saturating_add(SPARE_LANES)
                .clamp(1, LANES_IN_DAEMON),
        }
    }

    /// The connection that was made last, of those that have not ended.
    pub fn newest(&self) -> Result<Arc<RemoteToken>> {
        let newest = self.connected.newest();
        newest.ok_or_else(|| Error::lost("the connection to the daemon has ended"))
    }

    /// A connection after its greeting, and the agreed version of frames.
    fn open(&self) -> Result<(Unshared<UnixStream>, u16)> {
        let stream = Unshared::from(self.daemon.connect(ServiceClient::Service)?);
        let hello = Hello {
            oldest: *SPOKEN.start(),
            newest: *SPOKEN.end(),
            client: self.client,
            program: std::env::args().next_back().unwrap_or_default(),
        };
        match decode(ask(&stream, &hello, PATIENCE)?)? {
            Greeting::Welcome(welcome) => Ok((stream, welcome.version)),
            Greeting::Refused(error) => Err(error),
        }
    }
}

/// Sends a call, and returns its answer.
fn ask_within(
    over: &Unshared<UnixStream>,
    version: u16,
    call: &Call,
    patience: Duration,
) -> Result<Answer> {
    Ok(decode_reply(version, &ask(over, call, patience)?.into())?.answer)
}

/// Sends one message, and returns the frame that answers it.
fn ask(over: &Unshared<UnixStream>, message: &impl Message, patience: Duration) -> Result<Vec<u8>> {
    let over = Unshared::make(|| over.try_clone());
    let over = over.map_err(|error| Error::lost(format!("{NAME}: {error}")))?;
    let answer = Connection::new(over).exchange(message, Some(Instant::now() + patience));
    answer.map_err(|error| Error::lost(format!("{NAME}: {error}")))
}

impl Connector for DaemonConnector {
    fn connect(&self) -> Result<Arc<dyn Token>> {
        let (admin, version) = self.open()?;
        let info = match ask_within(&admin, version, &Call::Info, PATIENCE)? {
            Answer::Info(info) => info,
            Answer::Failed(error) => return Err(error),
            other => return Err(Error::protocol(format!("answered {other:?}"))),
        };
        let info = TokenInfo {
            lanes: self.lanes_for(&info),
            ..info
        };
        let lanes = (0..info.lanes).map(|_| Ok(self.open()?.0));
        let token = RemoteToken::start(
            Arc::clone(&self.reactor),
            Link {
                name: NAME.to_owned(),
                version,
                lanes: lanes.collect::<Result<_>>()?,
                admin: Some(admin),
                depth: 1,
                one_frame: false,
                peer: Box::new(()),
                info,
            },
        )?;
        self.connected.add(&token);
        Ok(token)
    }

    fn care(&self) -> Care {
        Care {
            look: true,
            ..Care::default()
        }
    }

    fn remote(&self) -> bool {
        true
    }

    fn vouches(&self) -> bool {
        true
    }

    fn outgrown(&self) -> Result<bool> {
        let token = self.newest()?;
        let (was, now) = (token.info(), token.inquire()?);
        Ok(now.mechanisms != was.mechanisms || self.lanes_for(&now) != was.lanes)
    }

    fn withdraw(&self, request: u64) {
        // If the queue is full, the request runs on.
        let _ = self.withdrawals.try_send(request);
    }

    fn connect_probe(&self) -> Result<Arc<dyn Token>> {
        Ok(self.newest()?)
    }
}

/// Sends withdrawals on a thread of its own, for as long as there is a connector.
fn withdraw_in_background(
    connector: &Arc<DaemonConnector>,
    withdrawn: Receiver<u64>,
) -> Result<()> {
    let connector = Arc::downgrade(connector);
    let thread = thread::Builder::new().name("hsmux-withdraw".into());
    let started = thread.spawn(move || {
        while let Ok(first) = withdrawn.recv() {
            let others = withdrawn.try_iter().take(WITHDRAWN - 1);
            let requests = std::iter::once(first).chain(others).collect();
            let Some(connector) = connector.upgrade() else {
                return;
            };
            let sent = connector
                .newest()
                .and_then(|token| token.withdraw(requests));
            if let Err(error) = sent {
                tracing::debug!(%error, "requests were not withdrawn");
            }
        }
    });
    started.map_err(|error| Error::pool(Kind::Environment, format!("no thread: {error}")))?;
    Ok(())
}
