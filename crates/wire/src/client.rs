//! The client for applications. It has no thread of its own, and a fork may leave it behind.

mod direct;

use std::io;
use std::time::{Duration, Instant};

use hsmux_token::sync::{Mutex, Turn};
use hsmux_token::{Error, Kind, Operation, Outcome, Result, Secret};

use crate::connection::{self, Broken, Connection};
use crate::count::{Count, Counted};
use crate::frame;
use crate::hello::{Greeting, SPOKEN, Versions};
use crate::{Answer, Call, Endpoint, Hello, Item, KNOWS_BEGIN, Peer, Reply, Welcome, socket};
use direct::WorkerConnections;

/// Idle connections that are kept; a burst of threads may have opened more.
const MAX_IDLE: usize = 256;

/// The client waits this much longer than the operation's deadline: an answer about a missed deadline still arrives.
const GRACE: Duration = Duration::from_secs(2);

/// For [`Client::connect`], which has no deadline of a call.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A client of the daemon: a stack of idle connections, each with one call at a time.
///
/// A call takes the connection that was used last, or opens another. If the daemon was restarted meanwhile, a call is
/// repeated once on a new connection, provided that the daemon has not seen it or that it may run twice. An application
/// that had logged in is logged in again first.
pub struct Client {
    endpoint: Endpoint,
    hello: Hello,
    idle: Mutex<Vec<DaemonConnection>>,
    direct: Box<WorkerConnections>,
    open: Count,
    /// The PIN of the last login that was accepted. A thread holds it while it connects.
    login: Turn<Option<Secret>>,
    welcome: Mutex<Option<Welcome>>,
    verify: Option<VerifyServer>,
}

/// Decides whether the process that listens at a socket may be told anything.
pub type VerifyServer = fn(&Endpoint, Peer) -> io::Result<()>;

/// A connection to the daemon that has been greeted.
struct DaemonConnection {
    connection: Connection,
    version: u16,
    _open: Counted,
}

impl Client {
    /// A client that connects at its first call. The daemon logs `program`.
    pub fn new(endpoint: Endpoint, program: &str) -> Result<Self> {
        Self::with_versions(endpoint, program, SPOKEN)
    }

    /// A client that has greeted the daemon.
    pub fn connect(endpoint: Endpoint, program: &str) -> Result<Self> {
        let client = Self::new(endpoint, program)?;
        client.reach()?;
        Ok(client)
    }

    /// Connects and greets the daemon. The next call uses the connection.
    pub fn reach(&self) -> Result<()> {
        let daemon = self.fresh(Instant::now() + CONNECT_WITHIN)?;
        self.idle.lock().push(daemon);
        Ok(())
    }

    /// A client that speaks only these versions: for tests of an older client.
    pub fn with_versions(endpoint: Endpoint, program: &str, versions: Versions) -> Result<Self> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| {
            Error::pool(Kind::Environment, format!("no random numbers: {error}"))
        })?;
        Ok(Self {
            endpoint,
            hello: Hello {
                oldest: *versions.start(),
                newest: *versions.end(),
                client: id,
                program: program.to_owned(),
            },
            idle: Mutex::default(),
            direct: Box::default(),
            open: Count::default(),
            login: Turn::default(),
            welcome: Mutex::default(),
            verify: None,
        })
    }

    /// Verifies the server at each connection, before anything is sent.
    #[must_use]
    pub fn verifying(mut self, verify: VerifyServer) -> Self {
        self.verify = Some(verify);
        self
    }

    /// The daemon's greeting on the last new connection; `None` before the first.
    pub fn welcome(&self) -> Option<Welcome> {
        self.welcome.lock().clone()
    }

    /// Calls and waits for the answer.
    ///
    /// An answer of [`Answer::Failed`] is an error here.
    pub fn call(&self, call: Call, deadline: Instant) -> Result<Reply> {
        if matches!(call, Call::Logout) {
            // Also if this call fails: a later connection must not log in again.
            *self.login.lock() = None;
        }
        let reply = self.exchange(&call, deadline)?;
        if let Answer::Failed(error) = reply.answer {
            return Err(error);
        }
        if let Call::Login(pin) = call {
            *self.login.lock() = Some(pin);
        }
        Ok(reply)
    }

    /// Runs one operation; the daemon has until the deadline for it.
    ///
    /// [`Operation::Begin`] is not sent to a daemon that does not know it. That daemon refuses the next step instead.
    pub fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        if matches!(operation, Operation::Begin { .. }) && !self.knows_begin() {
            return Ok(Outcome::Done);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let item = Item {
            operation: operation.clone(),
            remaining_us: u64::try_from(left.as_micros()).unwrap_or(u64::MAX),
            behalf: None,
        };
        let call = Call::Execute(vec![item]);
        match self.call(call, deadline + GRACE)?.answer {
            Answer::Results(mut results) if results.len() == 1 => results.remove(0),
            other => Err(unexpected(&other)),
        }
    }

    fn knows_begin(&self) -> bool {
        let welcome = self.welcome.lock();
        welcome
            .as_ref()
            .is_some_and(|welcome| welcome.version >= KNOWS_BEGIN)
    }

    fn exchange(&self, call: &Call, deadline: Instant) -> Result<Reply> {
        match self.exchange_directly(call, deadline) {
            Some(reply) => Ok(reply),
            None => self.exchange_with_daemon(call, deadline),
        }
    }

    fn exchange_with_daemon(&self, call: &Call, deadline: Instant) -> Result<Reply> {
        let idle = self.idle.lock().pop();
        let daemon = match idle {
            Some(daemon) => daemon,
            None => self.fresh(deadline)?,
        };
        let broken = match self.exchange_on(daemon, call, deadline) {
            Ok(reply) => return Ok(reply),
            Err(broken) => broken,
        };
        if !may_repeat(&broken, call) {
            return Err(self.broken(&broken, call));
        }
        // The other connections lead to the same daemon, which has ended.
        self.idle.lock().clear();
        let daemon = self.fresh(deadline)?;
        self.exchange_on(daemon, call, deadline)
            .map_err(|broken| self.broken(&broken, call))
    }

    fn exchange_on(
        &self,
        mut daemon: DaemonConnection,
        call: &Call,
        deadline: Instant,
    ) -> Result<Reply, Broken> {
        let answer = daemon.connection.exchange(call, Some(deadline))?;
        let reply =
            frame::decode_reply(daemon.version, &answer.into()).map_err(Broken::Malformed)?;
        self.keep(daemon);
        Ok(reply)
    }

    fn keep(&self, daemon: DaemonConnection) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(daemon);
        }
    }

    /// Connects and greets, one thread at a time: the first thread logs the application in again.
    fn fresh(&self, deadline: Instant) -> Result<DaemonConnection> {
        let mut login = self
            .login
            .lock_until(deadline)
            .ok_or_else(|| self.late("the greeting"))?;
        let forgotten = self.open.get() == 0;
        let stream =
            socket::open(&self.endpoint, deadline).map_err(|error| self.unreachable(&error))?;
        if let Some(verify) = self.verify {
            Peer::of(&stream)
                .and_then(|peer| verify(&self.endpoint, peer))
                .map_err(|error| Error::pool(Kind::Environment, error.to_string()))?;
        }
        let mut connection = Connection::new(stream);
        let greeting = connection
            .exchange(&self.hello, Some(deadline))
            .map_err(|broken| self.broken_at("the greeting", &broken))?;
        let welcome = match connection::decode(greeting)? {
            Greeting::Welcome(welcome) => welcome,
            Greeting::Refused(error) => return Err(error.at(&self.endpoint)),
        };
        let mut daemon = DaemonConnection {
            connection,
            version: welcome.version,
            _open: self.open.one(),
        };
        let boot = welcome.boot;
        self.direct.offered(welcome.hands_over == Some(true));
        let before = self.welcome.lock().replace(welcome);
        let restarted = before.is_some_and(|before| before.boot != boot);
        if (restarted || forgotten) && login.is_some() {
            self.login_again(&mut daemon, &mut login, deadline)?;
        }
        Ok(daemon)
    }

    fn login_again(
        &self,
        daemon: &mut DaemonConnection,
        login: &mut Option<Secret>,
        deadline: Instant,
    ) -> Result<()> {
        let Some(pin) = login.take() else {
            return Ok(());
        };
        let call = Call::Login(pin.clone());
        let answer = daemon
            .connection
            .exchange(&call, Some(deadline))
            .map_err(|broken| self.broken(&broken, &call))?;
        let reply = frame::decode_reply(daemon.version, &answer.into())?;
        // A PIN that is refused now is not sent again. The application's next call fails because it is not logged in.
        if matches!(reply.answer, Answer::Done) {
            *login = Some(pin);
        }
        Ok(())
    }

    fn broken(&self, broken: &Broken, call: &Call) -> Error {
        self.broken_at(call.name(), broken)
    }

    fn broken_at(&self, what: &str, broken: &Broken) -> Error {
        match broken {
            Broken::Malformed(error) => error.clone().at(&self.endpoint),
            late if late.is_late() => self.late(what),
            other => Error::lost(format!(
                "{what}: the daemon at {} went away before it answered: {other}",
                self.endpoint
            )),
        }
    }

    fn late(&self, what: &str) -> Error {
        let message = format!(
            "{what}: no answer from the daemon at {} by the deadline",
            self.endpoint
        );
        Error::pool(Kind::Deadline, message)
    }

    fn unreachable(&self, error: &io::Error) -> Error {
        let (kind, advice) = match error.kind() {
            io::ErrorKind::PermissionDenied => (
                Kind::AccessDenied,
                "this user may not open it: see `mode`, `group` and `allow_users` of its [daemon], [[listener]] or [admin]",
            ),
            io::ErrorKind::WouldBlock => (Kind::Lost, "it does not answer: is the daemon stopped?"),
            _ => (
                Kind::NoReplica,
                "is the daemon running? Start it with `hsmux serve`, or with systemctl start hsmux",
            ),
        };
        let message = format!("cannot connect to {}: {error}; {advice}", self.endpoint);
        Error::pool(kind, message)
    }
}

fn may_repeat(broken: &Broken, call: &Call) -> bool {
    match broken {
        late if late.is_late() => false,
        Broken::Unsent(_) => true,
        Broken::Sent(_) => call.repeatable(),
        Broken::Malformed(_) => false,
    }
}

fn unexpected(answer: &Answer) -> Error {
    Error::protocol(format!("an answer that was not asked for: {answer:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::path::Path;

    /// Commands advise by the kind, which the words may not tell.
    #[test]
    fn the_kind_says_why_a_socket_is_not_reached() {
        let client = Client::new(Endpoint::from(Path::new("/none")), "test").unwrap();
        for (why, kind) in [
            (ErrorKind::NotFound, Kind::NoReplica),
            (ErrorKind::ConnectionRefused, Kind::NoReplica),
            (ErrorKind::PermissionDenied, Kind::AccessDenied),
            (ErrorKind::WouldBlock, Kind::Lost),
        ] {
            assert_eq!(client.unreachable(&why.into()).kind(), kind, "{why}");
        }
    }
}
