//! What the pool adds to one operation: over a token that does nothing, on both paths.
//!
//! `cargo bench -p hsmux-pool`. A plain harness: the figure of interest is a difference of means
//! over many operations, which needs no statistics but enough of them.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hsmux_pool::{Options, Pool, Seat};
use hsmux_token::{
    Attributes, Batch, Class, Done, Mechanism, MechanismInfo, Object, ObjectId, Operation, Outcome,
    Request, Result, Snapshot, Token, TokenInfo, Verb, ck,
};

/// Answers at once.
struct Nothing {
    info: Arc<TokenInfo>,
    objects: Arc<Snapshot>,
}

fn key() -> ObjectId {
    ObjectId::of_public_key(Class::PUBLIC_KEY, b"a public key needs no proof")
}

impl Nothing {
    fn new() -> Arc<Self> {
        let mechanism = MechanismInfo {
            kind: ck::CKM_RSA_PKCS,
            min_key: 0,
            max_key: 4096,
            flags: 0,
        };
        let attributes = Attributes::default().with_number(ck::CKA_CLASS, ck::CKO_PUBLIC_KEY);
        Arc::new(Self {
            info: Arc::new(TokenInfo {
                lanes: 4,
                mechanisms: vec![mechanism],
                ..TokenInfo::default()
            }),
            objects: Arc::new(Snapshot {
                is_partial: false,
                epoch: 1,
                objects: vec![Object {
                    id: key(),
                    attributes,
                }],
            }),
        })
    }
}

impl Token for Nothing {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::clone(&self.info)
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        Ok(Arc::clone(&self.objects))
    }

    fn submit(&self, batch: Batch) {
        for request in batch {
            request.done.complete(Ok(Outcome::Done));
        }
    }

    fn execute(&self, operation: &Operation, _: Instant) -> Result<Outcome> {
        black_box(operation);
        Ok(Outcome::Done)
    }
}

fn operation() -> Operation {
    Operation::Use {
        verb: Verb::Encrypt,
        key: key().into(),
        mechanism: Mechanism::plain(ck::CKM_RSA_PKCS),
        data: vec![0; 32].into(),
    }
}

fn pool(seats: usize) -> Arc<Pool> {
    let seat = |n| Seat {
        name: format!("seat{n}"),
        member: format!("seat{n}"),
        weight: 1,
        timeout: Duration::from_secs(10),
        connector: Arc::new(|| -> Result<Arc<dyn Token>> { Ok(Nothing::new()) }),
    };
    Pool::start(Options::default(), (0..seats).map(seat).collect()).expect("the pool starts")
}

/// Nanoseconds for one call, over `threads` threads: the best of five rounds.
fn nanoseconds(threads: usize, call: impl Fn() + Sync) -> f64 {
    const CALLS: u32 = 200_000;
    let round = || {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..CALLS).for_each(|_| call()));
            }
        });
        begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    round();
    (0..5).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn main() {
    let operation = operation();
    let deadline = || Instant::now() + Duration::from_secs(30);
    let direct = Nothing::new();
    let bare = nanoseconds(1, || {
        black_box(direct.execute(&operation, deadline())).expect("answered");
    });
    println!(
        "{:<44}{bare:>8.0} ns",
        "direct call of a token that does nothing"
    );
    for seats in [1, 4, 64, 128] {
        let pool = pool(seats);
        for threads in [1, 2] {
            let took = nanoseconds(threads, || {
                black_box(pool.execute(&operation, deadline())).expect("answered");
            });
            let what = format!("execute, {seats} seats, {threads} threads");
            println!("{what:<44}{:>8.0} ns more", took - bare);
        }
        let took = nanoseconds(1, || submit(&pool, &operation, deadline()));
        println!(
            "{:<44}{:>8.0} ns more",
            format!("submit, {seats} seats"),
            took - bare
        );
    }
}

fn submit(pool: &Pool, operation: &Operation, deadline: Instant) {
    let (sender, receiver) = mpsc::sync_channel(1);
    pool.submit(Batch::from_buf([Request {
        behalf: None,
        operation: operation.clone(),
        deadline,
        done: Done::new(move |result| {
            let _ = sender.send(result);
        }),
    }]));
    black_box(receiver.recv().expect("answered")).expect("served");
}
