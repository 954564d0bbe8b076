//! A token that answers what it is given, a server in front of it, and the frames between.
#![allow(dead_code)]

pub mod workers;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use hsmux_token::{
    Batch, Done, Error, Kind, Mechanism, ObjectId, Operation, Outcome, Request, Result, Snapshot,
    Token, TokenInfo, Verb, ck,
};
use hsmux_wire::frame::{FrameBuffer, MAX_FRAME, decode, decode_call};
use hsmux_wire::{
    Answer, Answerer, Call, Connection, Conversation, Endpoint, Greeting, Hello, Link, Listening,
    Peer, PeerProcess, Reactor, RemoteToken, Reply, SPOKEN, Service, Supervisor, VERSION, agree,
    serve_lane,
};

/// Answers the data of a `Use`, and `C_GenerateRandom` by sleeping as many milliseconds.
pub struct Echo;

impl Token for Echo {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::default()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        Ok(Arc::new(Snapshot {
            is_partial: false,
            epoch: 7,
            objects: Vec::new(),
        }))
    }

    fn submit(&self, batch: Batch) {
        for request in batch {
            let result = self.execute(&request.operation, request.deadline);
            request.done.complete(result);
        }
    }

    fn execute(&self, operation: &Operation, _: Instant) -> Result<Outcome> {
        match operation {
            Operation::Use { data, .. } => Ok(Outcome::Bytes(data.clone())),
            Operation::Random { len } => {
                std::thread::sleep(Duration::from_millis(u64::from(*len)));
                Ok(Outcome::Done)
            }
            other => Err(Error::request(Kind::Unsupported, other.call())),
        }
    }
}

/// Nobody looks whether a worker hangs.
pub struct Unwatched;

impl Supervisor for Unwatched {
    fn begin(&self) {}

    fn end(&self, _: u64) -> Option<Instant> {
        None
    }

    fn rest(&self) {}
}

/// A signature over `data`.
pub fn sign(data: &[u8]) -> Operation {
    Operation::Use {
        verb: Verb::Sign,
        key: ObjectId::of_certificate(b"a key").into(),
        mechanism: Mechanism::plain(ck::CKM_ECDSA),
        data: data.to_vec().into(),
    }
}

/// Whether a token takes what [`sign`] is done with.
pub fn begin() -> Operation {
    Operation::Begin {
        verb: Verb::Sign,
        key: ObjectId::of_certificate(b"a key").into(),
        mechanism: Mechanism::plain(ck::CKM_ECDSA),
    }
}

/// A token behind lanes that threads of this process serve.
pub fn remote(reactor: &Arc<Reactor>, lanes: usize) -> Arc<RemoteToken> {
    let token: Arc<dyn Token> = Arc::new(Echo);
    remote_of(reactor, lanes, 2, &token)
}

pub fn remote_of(
    reactor: &Arc<Reactor>,
    lanes: usize,
    depth: usize,
    token: &Arc<dyn Token>,
) -> Arc<RemoteToken> {
    let lanes = (0..lanes).map(|_| lane(token, VERSION)).collect();
    start(reactor, lanes, lane(token, VERSION), depth)
}

/// The same with one lane, in a version of the frames.
pub fn remote_in(reactor: &Arc<Reactor>, version: u16) -> Arc<RemoteToken> {
    let token: Arc<dyn Token> = Arc::new(Echo);
    let lanes = vec![lane(&token, version)];
    start_in(reactor, version, lanes, lane(&token, version), 1)
}

fn lane(token: &Arc<dyn Token>, version: u16) -> UnixStream {
    let (near, far) = UnixStream::pair().unwrap();
    let token = Arc::clone(token);
    std::thread::spawn(move || serve_lane(far, version, &*token));
    near
}

pub fn start(
    reactor: &Arc<Reactor>,
    lanes: Vec<UnixStream>,
    admin: UnixStream,
    depth: usize,
) -> Arc<RemoteToken> {
    start_in(reactor, VERSION, lanes, admin, depth)
}

pub fn start_in(
    reactor: &Arc<Reactor>,
    version: u16,
    lanes: Vec<UnixStream>,
    admin: UnixStream,
    depth: usize,
) -> Arc<RemoteToken> {
    let peer: Box<dyn PeerProcess> = Box::new(());
    let link = Link {
        name: "the worker of test".into(),
        info: TokenInfo::default(),
        version,
        lanes: lanes.into_iter().map(Into::into).collect(),
        admin: Some(admin.into()),
        depth,
        one_frame: false,
        peer,
    };
    RemoteToken::start(Arc::clone(reactor), link).unwrap()
}

/// Carries out operations by a function.
pub struct Doing<F>(pub F);

impl<F> Doing<F>
where
    F: Fn(&Operation, Instant) -> Result<Outcome> + Send + Sync + 'static,
{
    pub fn arc(execute: F) -> Arc<dyn Token> {
        Arc::new(Self(execute))
    }
}

impl<F> Token for Doing<F>
where
    F: Fn(&Operation, Instant) -> Result<Outcome> + Send + Sync,
{
    fn info(&self) -> Arc<TokenInfo> {
        Arc::default()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        Echo.objects()
    }

    fn submit(&self, batch: Batch) {
        for request in batch {
            let result = self.execute(&request.operation, request.deadline);
            request.done.complete(result);
        }
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        (self.0)(operation, deadline)
    }
}

/// Serves a token as a daemon would.
pub struct Daemon {
    pub token: Arc<dyn Token>,
    pub boot: u64,
    pub closed: AtomicUsize,
    pub logins: AtomicUsize,
}

impl Daemon {
    pub fn new(token: Arc<dyn Token>) -> Arc<Self> {
        Arc::new(Self {
            token,
            boot: 1,
            closed: AtomicUsize::new(0),
            logins: AtomicUsize::new(0),
        })
    }
}

/// The service is its own conversation.
pub struct Front(pub Arc<Daemon>);

impl Service for Front {
    fn boot(&self) -> u64 {
        self.0.boot
    }

    fn open(&self, peer: Peer, _: &Hello) -> Result<Arc<dyn Conversation>> {
        assert_eq!(peer.uid, rustix::process::getuid().as_raw());
        Ok(Arc::new(Front(Arc::clone(&self.0))))
    }
}

impl Conversation for Front {
    fn call(&self, call: Call, answer: Answerer) {
        let daemon = &self.0;
        let reply = |answer| Reply::new(3, answer);
        match call {
            Call::Execute(items) => {
                // One item for each call is all that these tests send.
                let item = items.into_iter().next().unwrap();
                let deadline = Instant::now() + Duration::from_micros(item.remaining_us);
                let done = Done::new(move |result| {
                    answer.send(&reply(Answer::Results(vec![result])));
                });
                daemon.token.submit(Batch::from_iter([Request {
                    behalf: None,
                    operation: item.operation,
                    deadline,
                    done,
                }]));
            }
            Call::Login(pin) if pin.expose() == b"1234" => {
                daemon.logins.fetch_add(1, Ordering::SeqCst);
                answer.send(&reply(Answer::Done));
            }
            Call::Login(_) => answer.send(&Reply::failed(Error::request(
                Kind::PinIncorrect,
                "the PIN is wrong",
            ))),
            Call::Info => answer.send(&reply(Answer::Info(TokenInfo::default()))),
            _ => drop(answer),
        }
    }

    fn closed(&self) {
        self.0.closed.fetch_add(1, Ordering::SeqCst);
    }
}

pub fn listen(reactor: &Reactor, path: &Path, daemon: &Arc<Daemon>) -> Listening {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).unwrap();
    reactor
        .listen(listener, Arc::new(Front(Arc::clone(daemon))))
        .unwrap()
}

pub fn endpoint(path: &Path) -> Endpoint {
    Endpoint::Unix(path.to_owned())
}

/// How long a test waits for what has to come; a slow machine takes its time.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// Waits until something is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = soon();
    while !so() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The next number of a sequence that looks random (xorshift) and is the same in every run.
pub fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Changes, cuts out or puts in a few bytes.
pub fn mutate(seed: &mut u64, bytes: &mut Vec<u8>) {
    for _ in 0..=random(seed) % 4 {
        if bytes.is_empty() {
            return;
        }
        let at = random(seed) as usize % bytes.len();
        let value = random(seed) as u8;
        match random(seed) % 4 {
            0 => drop(bytes.remove(at)),
            1 => bytes.insert(at, value),
            2 => bytes.truncate(at),
            _ => bytes[at] = value,
        }
    }
}

/// Whether these bytes of a client are wrong, whatever may follow: its greeting, or its first call.
pub fn is_malformed(bytes: &[u8]) -> bool {
    const LONGEST_GREETING: usize = 4 << 10;
    let mut buffer = FrameBuffer::of_calls();
    buffer.extend(bytes);
    let hello = match buffer.next(LONGEST_GREETING) {
        Ok(Some(frame)) => decode::<Hello>(&frame.into()),
        other => return other.is_err(),
    };
    let agreed = hello.and_then(|hello| agree(&SPOKEN, &hello.versions()));
    match (agreed, buffer.next(MAX_FRAME)) {
        (Ok(_), Ok(Some(frame))) => decode_call(frame).is_err(),
        (agreed, next) => agreed.is_err() || next.is_err(),
    }
}

/// Hears what becomes of a request.
pub type OutcomeReceiver = mpsc::Receiver<Result<Outcome>>;

pub fn request(operation: Operation, within: Duration) -> (Request, OutcomeReceiver) {
    let (tell, told) = mpsc::channel();
    let request = Request {
        behalf: None,
        operation,
        deadline: Instant::now() + within,
        done: Done::new(move |result| tell.send(result).unwrap_or_default()),
    };
    (request, told)
}

pub fn submit(token: &RemoteToken, operation: Operation, within: Duration) -> OutcomeReceiver {
    let (request, told) = request(operation, within);
    token.submit(Batch::from_iter([request]));
    told
}

pub fn heard(told: &OutcomeReceiver) -> Result<Outcome> {
    told.recv_timeout(PATIENCE).expect("told")
}

pub const LONG: Duration = PATIENCE;

/// A token whose lanes nobody serves: the far ends are the test's.
pub fn unserved(reactor: &Arc<Reactor>, lanes: usize) -> (Arc<RemoteToken>, Vec<UnixStream>) {
    let pairs = (0..=lanes).map(|_| UnixStream::pair().unwrap());
    let (mut near, far): (Vec<_>, Vec<_>) = pairs.unzip();
    let admin = near.pop().unwrap();
    (start(reactor, near, admin, 4), far)
}

/// A connection as another user.
pub fn connect_as(path: &Path, uid: u32) -> Connection {
    let (connection, greeting) = greet_as(path, uid);
    assert!(
        matches!(greeting, Greeting::Welcome(_)),
        "{uid}: {greeting:?}"
    );
    connection
}

/// The same with what it is answered; credentials are a thread's own.
pub fn greet_as(path: &Path, uid: u32) -> (Connection, Greeting) {
    let as_user = || {
        let uid = rustix::process::Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        UnixStream::connect(path).unwrap()
    };
    let stream = std::thread::scope(|scope| scope.spawn(as_user).join().unwrap());
    let mut connection = Connection::new(stream);
    let hello = Hello {
        oldest: *SPOKEN.start(),
        newest: *SPOKEN.end(),
        client: [1; 16],
        program: "test".into(),
    };
    // Who is refused may have been told before it says anything.
    let _ = connection.write(&hello, Some(soon()));
    let greeting = connection.read(MAX_FRAME, Some(soon())).unwrap();
    (connection, hsmux_wire::decode(greeting).unwrap())
}

/// A socket that every user may connect to.
pub fn open_socket(folder: &Path) -> (PathBuf, UnixListener) {
    let path = folder.join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    for path in [folder, &path] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    (path, listener)
}
