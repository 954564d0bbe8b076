//! Heads that do not come to their end: they hold no more than is charged.

use std::io::Write;
use std::net::TcpStream;

use hsmux_suite::{PATIENCE, Rig, Setup, until};

use crate::connection::tcp;
use crate::rig::Broker;
use crate::unread_answers::resident;

const MEMORY: &str = "hsmux_broker_memory_bytes ";
const CLOSED: &str = "hsmux_broker_closed_total{reason=\"memory\"} ";

fn start(lines: &str) -> Broker {
    let section = format!(
        r#"
[broker]
listen = ["127.0.0.1:0"]
metrics = true
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

#[test]
fn unfinished_heads_share_one_memory_and_short_ones_are_served() {
    const CONNECTIONS: usize = 400;
    /// A sixteenth of `max_bodies`.
    const ROOM: f64 = (1 << 20) as f64;
    const GROWTH: u64 = 14 << 20;
    let broker = start("max_body = 65536\nmax_bodies = 16777216");
    let begin = |_| {
        let mut stream = tcp(&broker.url);
        let said = stream.write_all(b"GET /healthz HTTP/1.1\r\n");
        said.expect("the begin of a head");
        stream
    };
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(begin).collect();
    broker.good("GET", "keys/app-gcm", "");
    let before = resident(&broker).0;
    let line = format!("X-Long: {}", "x".repeat(60_000));
    for stream in &mut streams {
        // It is closed where no memory is left.
        let _ = stream.write_all(line.as_bytes());
    }
    until("most are closed", PATIENCE, || {
        (broker.metric(CLOSED) > (CONNECTIONS - 40) as f64).then_some(())
    });
    let held = broker.metric(MEMORY);
    let (after, most) = resident(&broker);
    println!("before {before}, held {held}, after {after}, at most {most}");
    assert!(held > ROOM / 2.0 && held <= ROOM, "{held}");
    assert!(most < before + GROWTH, "{before} {after} {most}");
    broker.good("GET", "keys/app-gcm", "");
    drop(streams);
    until("all is given back", PATIENCE, || {
        (broker.metric(MEMORY) < 1.0).then_some(())
    });
}
