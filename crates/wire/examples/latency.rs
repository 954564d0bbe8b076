//! What the frames cost: round trips of 320 bytes over each part of the way, p50 and p99.
//!
//! `cargo run --release -p hsmux-wire --example latency [callers] [lanes]`. The worker and the
//! client are processes of their own, as in service; the program starts itself for them.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::{
    Batch, Done, Mechanism, ObjectId, Operation, Outcome, Request, Result, Snapshot, Token,
    TokenInfo, Verb, ck,
};
use hsmux_wire::{
    Answer, Answerer, Call, Client, Conversation, Endpoint, Hello, Item, Link, Peer, Reactor,
    RemoteToken, Reply, Service, serve_lane,
};

const ROUNDS: usize = 20_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("worker") => worker(),
        Some("client") => {
            let path = arguments.next().expect("a socket");
            client(&path, number(arguments.next(), 1));
        }
        callers => daemon(
            number(callers.map(str::to_owned), 1),
            number(arguments.next(), 4),
        ),
    }
}

fn number(text: Option<String>, default: usize) -> usize {
    text.map_or(default, |text| text.parse().expect("a number"))
}

struct Echo;

impl Token for Echo {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::default()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        Ok(Arc::default())
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
            _ => Ok(Outcome::Done),
        }
    }
}

fn sign() -> Operation {
    Operation::Use {
        verb: Verb::Sign,
        key: ObjectId::of_certificate(b"a key").into(),
        mechanism: Mechanism::plain(ck::CKM_ECDSA),
        data: vec![7; 256].into(),
    }
}

fn measure(name: &str, threads: usize, call: impl Fn() + Sync) {
    for _ in 0..ROUNDS / 10 {
        call();
    }
    let begun = Instant::now();
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let run = || {
            let timed = |_| {
                let begun = Instant::now();
                call();
                begun.elapsed()
            };
            (0..ROUNDS).map(timed).collect::<Vec<_>>()
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        running
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    });
    let rate = times.len() as f64 / begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |percent: usize| times[times.len() * percent / 100].as_nanos() as f64 / 1e3;
    println!(
        "{name:<44} p50 {:6.1} us  p99 {:6.1} us  {rate:8.0}/s",
        at(50),
        at(99)
    );
    let _ = std::io::stdout().flush();
}

/// One process per lane, each with its lane as standard input.
fn worker() {
    let lane: OwnedFd = std::os::fd::AsFd::as_fd(&std::io::stdin())
        .try_clone_to_owned()
        .unwrap();
    serve_lane(UnixStream::from(lane), 2, &Echo).unwrap();
}

fn spawn_lane(children: &mut Vec<Child>) -> UnixStream {
    let (near, far) = UnixStream::pair().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .arg("worker")
        .stdin(Stdio::from(OwnedFd::from(far)))
        .spawn()
        .unwrap();
    children.push(child);
    near
}

struct Front(Arc<dyn Token>);

impl Service for Front {
    fn boot(&self) -> u64 {
        1
    }

    fn open(&self, _: Peer, _: &Hello) -> Result<Arc<dyn Conversation>> {
        Ok(Arc::new(Front(Arc::clone(&self.0))))
    }
}

impl Conversation for Front {
    fn call(&self, call: Call, answer: Answerer) {
        let Call::Execute(items) = call else { return };
        let Some(Item { operation, .. }) = items.into_iter().next() else {
            return;
        };
        let done = Done::new(move |result| {
            let answer_of = Answer::Results(vec![result]);
            answer.send(&Reply::new(1, answer_of));
        });
        self.0.submit(Batch::from_iter([Request {
            behalf: None,
            operation,
            deadline: Instant::now() + Duration::from_secs(30),
            done,
        }]));
    }
}

fn client(path: &str, threads: usize) {
    let client = Client::connect(Endpoint::Unix(path.into()), "latency").unwrap();
    let name = format!("client, daemon, worker; {threads} callers");
    measure(&name, threads, || {
        let deadline = Instant::now() + Duration::from_secs(30);
        client.execute(&sign(), deadline).unwrap();
    });
}

fn daemon(callers: usize, lanes: usize) {
    let mut children = Vec::new();
    let soon = || Instant::now() + Duration::from_secs(30);

    let mut bare = hsmux_wire::Connection::new(spawn_lane(&mut children));
    let item = || Item {
        behalf: None,
        operation: sign(),
        remaining_us: 30_000_000,
    };
    let bare = std::sync::Mutex::new(&mut bare);
    measure("a lane, blocking, no reactor", 1, || {
        let call = Call::Execute(vec![item()]);
        bare.lock().unwrap().exchange(&call, Some(soon())).unwrap();
    });

    let reactor = Reactor::start().unwrap();
    let link = Link {
        name: "echo".into(),
        info: TokenInfo::default(),
        version: 2,
        lanes: (0..lanes)
            .map(|_| spawn_lane(&mut children).into())
            .collect(),
        admin: Some(spawn_lane(&mut children).into()),
        depth: 2,
        one_frame: false,
        peer: Box::new(()),
    };
    let token = RemoteToken::start(Arc::clone(&reactor), link).unwrap();
    measure("RemoteToken::execute", callers, || {
        token.execute(&sign(), soon()).unwrap();
    });

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    let front = Arc::new(Front(token));
    let listening = reactor.listen(listener, front).unwrap();
    let ran = Command::new(std::env::current_exe().unwrap())
        .arg("client")
        .args([path.as_os_str(), callers.to_string().as_ref()])
        .status();
    assert!(ran.unwrap().success());
    drop(listening);
    drop(reactor);
    for mut child in children {
        let _ = child.kill();
        let _ = child.wait();
    }
}
