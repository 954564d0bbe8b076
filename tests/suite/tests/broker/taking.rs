//! Clients that take their time over the answer: one that reads on is waited for, one that does not is let go.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use hsmux_suite::{PATIENCE, Rig, Setup};
use serde_json::json;

use crate::connection::{Connection, request, tcp};
use crate::frames;
use crate::rig::Broker;

/// A broker with these lines in its section, and a key.
fn start(lines: &str) -> Broker {
    let section = format!(
        r#"
[broker]
listen = ["127.0.0.1:0"]
{lines}

[[policy]]
clients = ["token:app"]
keys = ["app-*"]
allow = ["*"]
"#
    );
    let broker = Broker::of(Rig::empty(Setup::Daemon, 1), &section).known();
    broker.good("POST", "keys/app-gcm", "");
    broker
}

/// What fills every buffer between the two: an error for each of many items, with a long reference.
fn long_answer(broker: &Broker) -> String {
    let item = json!({"reference": "x".repeat(2000)});
    let items: Vec<_> = (0..10_000).map(|_| &item).collect();
    let body = json!({ "batch_input": items }).to_string();
    request("POST", "/v1/transit/encrypt/app-gcm", &broker.token, &body)
}

/// It is the client's last word while the broker is told to end, and longer than anything idle may be.
#[test]
fn a_long_answer_to_a_steady_reader_is_sent_to_its_end() {
    let mut broker = start("read_timeout = \"2s\"\nidle_timeout = \"1s\"\nin_flight = 1");
    let mut stream = tcp(&broker.url);
    let asked = long_answer(&broker);
    stream.write_all(asked.as_bytes()).expect("send");
    let mut part = vec![0; 64 << 10];
    let mut read = stream.read(&mut part).expect("an answer");
    let head = String::from_utf8_lossy(&part[..read]).to_lowercase();
    let (_, length) = head.split_once("content-length: ").expect("a length");
    let length = length.lines().next().expect("a line");
    let length: usize = length.parse().expect("a number");
    let body = head.find("\r\n\r\n").expect("a head") + 4;
    // Until it is taken the request is one of its client's.
    let (status, answer) = broker.ask("GET", "keys/app-gcm", "");
    assert_eq!(status, 429, "{answer}");
    thread::scope(|scope| {
        scope.spawn(|| broker.rig.stop());
        while read < body + length {
            thread::sleep(Duration::from_millis(8));
            match stream.read(&mut part).expect("the rest of the answer") {
                0 => panic!("{read} of {} bytes", body + length),
                more => read += more,
            }
        }
    });
    assert_eq!(read, body + length);
}

/// Its windows are closed from the start, and it pings for ever.
#[test]
fn a_client_of_http2_that_does_not_take_its_answer_is_let_go() {
    let broker = start("read_timeout = \"1s\"");
    let mut stream = frames::connect(&broker, frames::CLOSED);
    let request = frames::get(1, "/healthz");
    stream.write_all(&request).expect("a request");
    let begun = std::time::Instant::now();
    let mut part = [0; 1024];
    while matches!(stream.read(&mut part), Ok(read) if read > 0) {
        assert!(begun.elapsed() < PATIENCE, "it is not let go");
        thread::sleep(Duration::from_millis(20));
        let ping = frames::frame(frames::PING, 0, 0, &[0; 8]);
        if stream.write_all(&ping).is_err() {
            break;
        }
    }
}

/// Whether there is something to read.
fn is_answered(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a stream");
    let answered = stream.peek(&mut [0]).is_ok();
    stream.set_nonblocking(false).expect("a stream");
    answered
}

#[test]
fn bodies_have_so_much_room_together() {
    let broker = start("max_body = 65536\nmax_bodies = 65536");
    let body = |len: usize| format!(r#"{{"plaintext": "c2VjcmV0"{}}}"#, " ".repeat(len));
    let path = "/v1/transit/encrypt/app-gcm";
    let whole = request("POST", path, &broker.token, &body(50_000));
    let begin = || {
        let stream = tcp(&broker.url);
        let mut slow = Connection::over(stream.try_clone().expect("a copy"));
        slow.say(&whole.as_bytes()[..whole.len() - 1])
            .expect("send");
        (slow, stream)
    };
    let (mut slow, mut stream) = begin();
    let mut other = Connection::tcp(&broker.url);
    let refused = hsmux_suite::until("there is no room", PATIENCE, || {
        // It comes beside the other's, and may find no room itself.
        if is_answered(&stream) {
            (slow, stream) = begin();
        }
        let answer = other.ask("POST", path, &broker.token, &body(40_000));
        let answer = answer.expect("an answer");
        (answer.status != 200).then_some(answer)
    });
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.retry_after().is_some(), "{refused:?}");
    // A short one fits in beside it, as soon as what was refused is given back.
    hsmux_suite::until("a short one fits in", PATIENCE, || {
        let answer = Connection::tcp(&broker.url).ask("POST", path, &broker.token, &body(0));
        (answer.expect("an answer").status == 200).then_some(())
    });
    slow.say(b"}").expect("send");
    assert_eq!(slow.answer().expect("an answer").status, 200);
    let answer = Connection::tcp(&broker.url).ask("POST", path, &broker.token, &body(40_000));
    assert_eq!(answer.expect("an answer").status, 200);
}
