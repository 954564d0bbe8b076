//! Limits of a client: a request beyond them never reaches a token.

use std::io::Read;
use std::thread;

use hsmux_suite::{PATIENCE, Rig, Setup, StandIn, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::connection::{Connection, request, tcp};
use crate::rig::Broker;

/// Two clients who may sign with the stand-in's key.
const POLICY: &str = r#"
[[policy]]
clients = ["token:app", "token:other"]
keys = ["label:*", "app-*"]
allow = ["*"]
"#;

const SIGN: &str = "/v1/transit/sign/label:ec";
const TEXT: &str = r#"{"input": "dGV4dA=="}"#;

/// A broker over one token of the stand-in, with these lines in `[broker]`.
fn standin(lines: &str) -> (Broker, StandIn) {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let tokens = rig.stand_in("vendor", &["a"]);
    // A call that hangs is the test's doing.
    rig.config.members[0].more.push_str("timeout = \"10m\"\n");
    let text = format!("[broker]\nlisten = [\"127.0.0.1:0\"]\n{lines}\n{POLICY}");
    (Broker::of(rig, &text), tokens)
}

/// Another client's token.
fn other(broker: &Broker) -> String {
    let made = broker.rig.hsmux("token-auth create other").ok();
    made.out.trim().to_owned()
}

#[test]
fn past_its_rate_a_client_is_refused_and_costs_nothing() {
    let (broker, _tokens) = standin("rate = 1\nburst = 5");
    let before = broker.served();
    let mut connection = Connection::tcp(&broker.url);
    let mut signed = 0;
    let refused = until("the client's rate is used up", PATIENCE, || {
        let answer = connection
            .ask("POST", SIGN, &broker.token, TEXT)
            .expect("an answer");
        match answer.status {
            200 => {
                signed += 1;
                None
            }
            _ => Some(answer),
        }
    });
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.retry_after() >= Some(1), "{refused:?}");
    assert!(signed >= 5, "{signed}");
    let theirs = connection
        .ask("POST", SIGN, &other(&broker), TEXT)
        .expect("an answer");
    assert_eq!(theirs.status, 200, "{theirs:?}");
    assert_eq!(broker.served() - before, signed + 1);
}

#[test]
fn a_client_has_so_many_requests_at_once() {
    let (broker, mut tokens) = standin("in_flight = 2");
    tokens.set("a", "hang_in_sign = true");
    let mut waiting: Vec<_> = (0..2)
        .map(|_| {
            let mut connection = Connection::tcp(&broker.url);
            connection
                .send("POST", SIGN, &broker.token, TEXT)
                .expect("send");
            connection
        })
        .collect();
    // A third that came before them would have the place of one.
    until("two requests run", PATIENCE, || {
        (tokens.hung("a").len() == 2).then_some(())
    });
    // What asks for this touches no token.
    let mut third = Connection::tcp(&broker.url);
    let refused = third.ask("GET", "/v1/transit/keys/app-none", &broker.token, "");
    let refused = refused.expect("an answer");
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.retry_after() >= Some(1), "{refused:?}");
    let theirs = third.ask("GET", "/v1/transit/keys/app-none", &other(&broker), "");
    assert_eq!(theirs.expect("an answer").status, 404);
    tokens.set("a", "");
    for connection in &mut waiting {
        assert_eq!(connection.answer().expect("an answer").status, 200);
    }
    let again = third
        .ask("POST", SIGN, &broker.token, TEXT)
        .expect("an answer");
    assert_eq!(again.status, 200, "{again:?}");
}

#[test]
fn some_clients_may_cost_more_and_some_less() {
    let more = r#"rate = 1
burst = 5
max_body = 4096

[[limit]]
clients = ["token:other"]
rate = 1000000
max_body = 8192

[[limit]]
clients = ["*"]
max_body = 1024
"#;
    let (broker, _tokens) = standin(more);
    broker.rig.hsmux("config check").ok();
    let other = other(&broker);
    let body = |length: usize| format!("{TEXT}{}", " ".repeat(length - TEXT.len()));
    let ask = |token: &str, length: usize| {
        let mut connection = Connection::tcp(&broker.url);
        let answer = connection.ask("POST", SIGN, token, &body(length));
        answer.expect("an answer").status
    };
    for _ in 0..20 {
        assert_eq!(ask(&other, 8192), 200);
    }
    assert_eq!(ask(&other, 8193), 413);
    assert_eq!(ask(&broker.token, 1024), 200);
    assert_eq!(ask(&broker.token, 1025), 413);
    until("the other's rate is used up", PATIENCE, || {
        (ask(&broker.token, 1024) == 429).then_some(())
    });
    assert_eq!(ask(&other, 1024), 200);
}

/// Other limits, by SIGHUP, for those who have connected before.
#[test]
fn limits_change_while_the_broker_runs() {
    let (mut broker, _tokens) = standin("max_body = 4096");
    let mut connection = Connection::tcp(&broker.url);
    let token = broker.token.clone();
    let long = format!("{TEXT}{}", " ".repeat(5000));
    let mut ask = || {
        connection
            .ask("POST", SIGN, &token, &long)
            .expect("an answer")
    };
    assert_eq!(ask().status, 413);
    let limit = "[[limit]]\nclients = [\"token:app\"]\nmax_body = 8192\n";
    broker.rig.config.module.push_str(limit);
    broker.rig.reload();
    until("the new limit", PATIENCE, || {
        (ask().status == 200).then_some(())
    });
}

#[test]
fn what_is_refused_costs_the_tokens_nothing() {
    let (broker, _tokens) = standin("max_body = 4096");
    let long = format!(r#"{{"input": "{}"}}"#, "A".repeat(1 << 20));
    let before = broker.served();
    let own = broker.token.as_str();
    for (method, path, token, body, status) in [
        ("POST", SIGN, own, long.as_str(), 413),
        ("POST", SIGN, "hsmb.wrong", &long, 403),
        ("POST", SIGN, "hsmb.wrong", TEXT, 403),
        ("POST", SIGN, "", TEXT, 403),
        ("POST", SIGN, own, "{", 400),
        ("POST", SIGN, own, r#"{"input": "!"}"#, 400),
        ("POST", "/v1/transit/sign/label:none", own, TEXT, 404),
        ("POST", "/v1/transit/sign/theirs", own, TEXT, 403),
        ("POST", "/v1/transit/sign/app-none", own, TEXT, 404),
        // An EC key does not decrypt, and there is no hash of that name.
        (
            "POST",
            "/v1/transit/decrypt/label:ec",
            own,
            r#"{"ciphertext": "vault:v1:AAAA"}"#,
            400,
        ),
        ("POST", "/v1/transit/sign/label:ec/md9", own, TEXT, 400),
        ("DELETE", "/v1/transit/keys/theirs", own, "", 403),
        ("PATCH", SIGN, own, TEXT, 405),
        ("POST", "/v1/transit/nothing", own, TEXT, 404),
    ] {
        let mut connection = Connection::tcp(&broker.url);
        // The broker answers before it has read all of what it does not want.
        let _ = connection.send(method, path, token, body);
        let answer = connection.answer().expect("an answer");
        assert_eq!(answer.status, status, "{method} {path} {token}: {answer:?}");
    }
    assert_eq!(broker.served(), before);
}

/// A body that is said to be too long is refused before any of it is sent.
#[test]
fn a_long_body_is_refused_by_its_length() {
    let (broker, _tokens) = standin("max_body = 4096");
    let mut connection = Connection::tcp(&broker.url);
    let whole = request("POST", SIGN, &broker.token, &" ".repeat(8192));
    let head = whole.trim_end().len() + "\r\n\r\n".len();
    connection.say(&whole.as_bytes()[..head]).expect("send");
    let answer = connection.answer().expect("an answer");
    assert_eq!(answer.status, 413, "{answer:?}");
    assert!(answer.body.contains("at most 4096 bytes"), "{answer:?}");
}

#[test]
fn slow_clients_are_let_go_and_hold_nobody_up() {
    let (broker, _tokens) = standin("read_timeout = \"2s\"\nidle_timeout = \"4s\"");
    let whole = request("POST", SIGN, &broker.token, TEXT);
    let body = whole.len() - TEXT.len();
    let slow: Vec<_> = [0, 1, 30, body - 1, body + 1]
        .iter()
        .flat_map(|sent| (0..20).map(move |_| *sent))
        .map(|sent| {
            let mut connection = Connection::tcp(&broker.url);
            connection.say(&whole.as_bytes()[..sent]).expect("send");
            (sent, connection)
        })
        .collect();
    let mut quick = Connection::tcp(&broker.url);
    for _ in 0..20 {
        let answer = quick
            .ask("POST", SIGN, &broker.token, TEXT)
            .expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    for (sent, mut connection) in slow {
        if sent > body {
            let answer = connection.answer().expect("an answer");
            assert_eq!(answer.status, 408, "{answer:?}");
        }
        connection.wait_for_end();
    }
    // It has been idle all the while, or has had a last request.
    quick.wait_for_end();
    broker.good("POST", "sign/label:ec", TEXT);
}

/// A client that sends a byte now and then is not any quicker.
#[test]
fn a_head_that_trickles_in_is_given_up() {
    let (broker, _tokens) = standin("read_timeout = \"1s\"");
    let mut stream = tcp(&broker.url);
    stream
        .set_read_timeout(Some(std::time::Duration::from_millis(50)))
        .expect("a time-out");
    let mut connection = Connection::over(stream.try_clone().expect("the stream once more"));
    connection.say(b"POST / HTTP/1.1\r\n").expect("send");
    until("the connection ends", PATIENCE, || {
        if connection.say(b"X").is_err() {
            return Some(());
        }
        match stream.read(&mut [0; 64]) {
            Ok(0) => Some(()),
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => Some(()),
            _ => None,
        }
    });
}

/// One more than the broker has places for: the first of them makes room, and all others stay.
#[test]
fn ten_thousand_idle_connections_leave_others_served() {
    may_open(FILES);
    let (broker, _tokens) = standin("metrics = true");
    let mut idle: Vec<_> = (0..CONNECTIONS).map(|_| tcp(&broker.url)).collect();
    let open = || broker.metric("hsmux_broker_connections ");
    until("ten thousand are open", PATIENCE, || {
        (open() >= 10_000.0).then_some(())
    });
    let mut last = Connection::over(idle.pop().expect("a connection"));
    let mut first = Connection::over(idle.remove(0));
    first.wait_for_end();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (url, token) = (broker.url.clone(), broker.token.clone());
            thread::spawn(move || {
                let mut connection = Connection::tcp(&url);
                for _ in 0..50 {
                    let answer = connection
                        .ask("POST", SIGN, &token, TEXT)
                        .expect("an answer");
                    assert_eq!(answer.status, 200, "{answer:?}");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("a client that is served");
    }
    // Those who came had places of idle ones, and have gone.
    assert!(open() >= 9_900.0, "{}", open());
    let answer = last.ask("POST", SIGN, &broker.token, TEXT);
    assert_eq!(answer.expect("an answer").status, 200);
    drop(idle);
    broker.good("POST", "sign/label:ec", TEXT);
}

const CONNECTIONS: u64 = 10_001;

/// Half of the broker's are for connections; of this process's the tests beside this one want some.
const FILES: u64 = 20_000;

/// Lets this process, and what it starts, open so many files. Root may do more than it was given (ulimit -Hn).
fn may_open(files: u64) {
    let limit = getrlimit(Resource::Nofile);
    let enough = |most: Option<u64>| most.is_none_or(|most| most >= files);
    if enough(limit.current) {
        return;
    }
    let wanted = Rlimit {
        current: Some(files),
        maximum: limit.maximum.map(|most| most.max(files)),
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        let most = limit.maximum;
        panic!("this test opens {files} files, and may open {most:?} (ulimit -Hn): {error}");
    }
}
