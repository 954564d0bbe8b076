//! The daemon's pool as a member of a pool in this process.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hsmux_pool::{Care, Connector, Options, Pool, Seat};
use hsmux_token::fork::Unshared;
use hsmux_token::{Error, Estimate, Kind, ObjectId, Result, Token, TokenInfo};
use hsmux_wire::frame::{Message, decode_reply};
use hsmux_wire::{
    Answer, Call, Connection, ESTIMATED, Greeting, Hello, Link, Reactor, RemoteToken, SPOKEN,
    ServiceClient, decode,
};
use parking_lot::Mutex;

use crate::{Daemon, Estimates};

/// The member's name in messages.
const NAME: &str = "the daemon";

/// How long the daemon may take to answer while a connection to it is made.
const PATIENCE: Duration = Duration::from_secs(10);

/// Limit on connections to the daemon, even if its tokens do more at once.
const LANES: u32 = 256;

/// A pool whose only member is the daemon. There is a connection for each operation that the daemon's tokens do at
/// once. Answers come on the thread that turns the reactor.
pub fn pool(daemon: &Arc<Daemon>, reactor: &Arc<Reactor>) -> Result<(Arc<Pool>, Estimates)> {
    let options = Options {
        answers: None,
        ..Options::from(&*daemon.config())
    };
    let mut client = [0; 16];
    getrandom::fill(&mut client)
        .map_err(|e| Error::pool(Kind::Environment, format!("no random bytes: {e}")))?;
    let connector = Arc::new(DaemonConnector {
        daemon: Arc::clone(daemon),
        reactor: Arc::clone(reactor),
        newest: Mutex::default(),
        client,
    });
    let seat = Seat {
        name: NAME.to_owned(),
        member: NAME.to_owned(),
        weight: 1,
        timeout: options.deadline,
        connector: Arc::clone(&connector) as Arc<dyn Connector>,
    };
    let pool = Pool::start(options, vec![seat])?;
    Ok((pool, Estimates::start(connector)?))
}

pub(crate) struct DaemonConnector {
    daemon: Arc<Daemon>,
    reactor: Arc<Reactor>,
    newest: Mutex<Weak<RemoteToken>>,
    /// This process's name for the daemon ([`Hello::client`]).
    client: [u8; 16],
}

impl DaemonConnector {
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
            match decode_reply(version, &ask(&stream, &Call::HandOver(key))?.into())?.answer {
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

    fn newest(&self) -> Result<Arc<RemoteToken>> {
        let newest = self.newest.lock().upgrade();
        newest.ok_or_else(|| Error::lost("the connection has ended"))
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
        match decode(ask(&stream, &hello)?)? {
            Greeting::Welcome(welcome) => Ok((stream, welcome.version)),
            Greeting::Refused(error) => Err(error),
        }
    }
}

/// Sends one message, and returns the frame that answers it.
fn ask(over: &Unshared<UnixStream>, message: &impl Message) -> Result<Vec<u8>> {
    let over = Unshared::make(|| over.try_clone());
    let over = over.map_err(|error| Error::lost(format!("{NAME}: {error}")))?;
    let answer = Connection::new(over).exchange(message, Some(Instant::now() + PATIENCE));
    answer.map_err(|error| Error::lost(format!("{NAME}: {error}")))
}

impl Connector for DaemonConnector {
    fn connect(&self) -> Result<Arc<dyn Token>> {
        let (admin, version) = self.open()?;
        let info = match decode_reply(version, &ask(&admin, &Call::Info)?.into())?.answer {
            Answer::Info(info) => info,
            Answer::Failed(error) => return Err(error),
            other => return Err(Error::protocol(format!("answered {other:?}"))),
        };
        let info = TokenInfo {
            lanes: info.lanes.clamp(1, LANES),
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
                peer: Box::new(()),
                info,
            },
        )?;
        *self.newest.lock() = Arc::downgrade(&token);
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
        Ok(now.mechanisms != was.mechanisms || now.lanes.clamp(1, LANES) != was.lanes)
    }

    fn connect_probe(&self) -> Result<Arc<dyn Token>> {
        Ok(self.newest()?)
    }
}
