//! A token's module in the daemon itself (`isolation = "thread"`), whose short work runs on the broker's own threads:
//! what becomes of the others when it hangs there.

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use hsmux_suite::{PATIENCE, Rig, Setup, StandIn, until};

use crate::connection::{Answer, Connection};
use crate::rig::Broker;

const SECTION: &str = r#"
[broker]
listen = ["127.0.0.1:0"]

[[policy]]
clients = ["token:app"]
keys = ["label:*"]
allow = ["sign"]
"#;

/// What the daemon calls the broker's threads.
const SERVING: &str = "hsmux-broker";

const DEADLINE: Duration = Duration::from_secs(15);

/// More than the service has threads.
const MANY: usize = 16;

/// Of the token that hangs, and of the one that does not.
const SIGN: &str = "/v1/transit/sign/label:ec";
const OTHER: &str = "/v1/transit/sign/label:rsa";

const TEXT: &str = r#"{"input": "dGV4dA==", "signature_algorithm": "pkcs1v15"}"#;

const HANGS: &str = "keys = [\"ec\"]\nparallel = true\nfast_sign = true\nhang_in_sign = true";
const ANSWERS: &str = "keys = [\"ec\"]\nparallel = true\nfast_sign = true";

/// Two tokens, each of a module of its own and with a key of its own.
fn broker() -> (Broker, StandIn) {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    rig.config.pool = format!("deadline = \"{}s\"", DEADLINE.as_secs());
    let mut hanging = rig.stand_in("hanging", &["a"]);
    let mut other = rig.stand_in("other", &["b"]);
    hanging.set("a", ANSWERS);
    other.set("b", "keys = [\"rsa\"]");
    for member in &mut rig.config.members {
        // The member is not given up before its requests are.
        let more = "isolation = \"thread\"\nsessions = 32\ntimeout = \"10m\"\n";
        member.more.push_str(more);
    }
    (Broker::of(rig, SECTION), hanging)
}

fn ask(broker: &Broker, path: &str) -> Answer {
    let answer = asked(broker, path).answer();
    answer.expect("an answer")
}

fn asked(broker: &Broker, path: &str) -> Connection {
    let mut connection = Connection::tcp(&broker.url);
    let (method, body) = match path {
        "/healthz" => ("GET", ""),
        _ => ("POST", TEXT),
    };
    connection
        .send(method, path, &broker.token, body)
        .expect("send");
    connection
}

/// How many requests hang on threads of the service.
fn serving(tokens: &StandIn) -> usize {
    let hung = tokens.hung("a");
    hung.iter().filter(|thread| *thread == SERVING).count()
}

/// One for each CPU, as many as may run operations.
fn most() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Answers as they come.
fn answers(connections: Vec<Connection>) -> Receiver<Answer> {
    let (tell, told) = channel();
    for mut connection in connections {
        let tell = tell.clone();
        thread::spawn(move || tell.send(connection.answer().expect("an answer")));
    }
    told
}

/// Requests that hang, on as many of the service's threads as may run operations: at first nothing is known of this
/// work, and it is handed over.
fn hang(broker: &Broker, tokens: &mut StandIn) -> Vec<Connection> {
    until(
        "requests hang on the service's own threads",
        PATIENCE,
        || {
            for _ in 0..60 {
                assert_eq!(ask(broker, SIGN).status, 200);
            }
            let before = (tokens.hung("a").len(), serving(tokens));
            tokens.set("a", HANGS);
            let mut hanging: Vec<_> = (0..MANY).map(|_| asked(broker, SIGN)).collect();
            until("all of them hang", PATIENCE, || {
                (tokens.hung("a").len() == before.0 + MANY).then_some(())
            });
            if serving(tokens) >= before.1 + most() {
                return Some(hanging);
            }
            tokens.set("a", ANSWERS);
            for connection in &mut hanging {
                connection.answer().expect("an answer");
            }
            None
        },
    )
}

#[test]
fn a_token_that_hangs_on_the_services_threads_holds_up_nobody_else() {
    let (broker, mut tokens) = broker();
    let answers = answers(hang(&broker, &mut tokens));
    let asked = Instant::now();
    for _ in 0..10 {
        for path in ["/healthz", OTHER] {
            let answer = ask(&broker, path);
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
        }
    }
    // Else they would have waited for those.
    let took = asked.elapsed();
    assert!(took < DEADLINE / 2, "{took:?}");
    let ended = || {
        let answer = answers.recv_timeout(PATIENCE).expect("an answer in time");
        assert_eq!(answer.status, 503, "{answer:?}");
    };
    // By their deadline, while the module still hangs.
    (most()..MANY).for_each(|_| ended());
    let took = asked.elapsed();
    assert!(took < 2 * DEADLINE, "{took:?}");
    for path in ["/healthz", OTHER] {
        assert_eq!(ask(&broker, path).status, 200, "{path}");
    }
    // Requests that hold a thread are answered when it is free. Their deadline has passed: the answer is an error.
    tokens.set("a", ANSWERS);
    (0..most()).for_each(|_| ended());
    until("the token serves again", PATIENCE, || {
        (ask(&broker, SIGN).status == 200).then_some(())
    });
}
