//! Back ends of HTTP/2 that flood the gateway with small frames or interim answers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use hsmux_suite::{PATIENCE, until};

use crate::backends::{backend, in_front_of};
use crate::h2::{self, ALL, END, HEADERS, OK, PING, RST_STREAM, SETTINGS, WHOLE, WINDOW_UPDATE};
use crate::many_backends::log;

/// Enough small frames to end the connection, whatever is sent to the back end meanwhile.
const FLOOD: usize = 20_000;
const ACK: u8 = 1;

/// How many requests were answered, and floods survived.
#[derive(Default)]
struct Counts {
    answered: AtomicUsize,
    survived: AtomicUsize,
}

/// Answers requests. After the first one of a connection it sends this frame so many times. Then it sends a ping: its
/// answer says that the gateway still reads.
fn serve(mut stream: &TcpStream, flood: (u8, &[u8]), times: usize, counts: &Counts) {
    let mut preface = [0; h2::PREFACE.len()];
    stream.read_exact(&mut preface).expect("a preface");
    h2::write(&mut stream, SETTINGS, 0, ALL, &[]).expect("settings");
    let last = [0xab; 8];
    let mut answered = 0u8;
    while let Ok((kind, flags, payload)) = h2::read(&mut stream) {
        match kind {
            HEADERS if flags & END != 0 => {
                let stream_id = 2 * answered + 1;
                if h2::write(&mut stream, HEADERS, WHOLE, stream_id, &[OK]).is_err() {
                    return;
                }
                counts.answered.fetch_add(1, Relaxed);
                answered += 1;
                if answered == 1 {
                    let (kind, payload) = flood;
                    let mut frame = Vec::new();
                    let of = if kind == RST_STREAM { 1 } else { ALL };
                    h2::write(&mut frame, kind, 0, of, payload).expect("memory");
                    for _ in 0..times {
                        if stream.write_all(&frame).is_err() {
                            return;
                        }
                    }
                    if h2::write(&mut stream, PING, 0, ALL, &last).is_err() {
                        return;
                    }
                }
            }
            PING if flags & ACK != 0 && payload == last => {
                counts.survived.fetch_add(1, Relaxed);
            }
            _ => {}
        }
    }
}

#[test]
fn floods_of_small_frames_end_their_connection_and_no_other() {
    let floods: [(u8, &'static [u8]); 4] = [
        (PING, &[7; 8]),
        (SETTINGS, &[]),
        (RST_STREAM, &[0, 0, 0, 8]),
        (WINDOW_UPDATE, &[0, 0, 0, 1]),
    ];
    for flood in floods {
        for (times, survives) in [(500, true), (FLOOD, false)] {
            let counts = Arc::new(Counts::default());
            let counted = Arc::clone(&counts);
            let address = backend(move |stream| serve(&stream, flood, times, &counted));
            let gateway = in_front_of("h2c", &address, "");
            gateway.curl("a.test", "/", "").says(" 200");
            if survives {
                until("the gateway listens", PATIENCE, || {
                    (counts.survived.load(Relaxed) == 1).then_some(())
                });
            }
            // The next request uses another connection, without a flood before it.
            let begun = Instant::now();
            gateway.curl("a.test", "/", "").says(" 200");
            assert!(begun.elapsed() < PATIENCE);
            let survived = counts.survived.load(Relaxed);
            assert_eq!(survived > 0, survives, "{flood:?} {}", log(&gateway));
        }
    }
}

/// Sends so many interim answers (103) before each final one.
fn interim(mut stream: &TcpStream, times: usize) {
    let mut preface = [0; h2::PREFACE.len()];
    stream.read_exact(&mut preface).expect("a preface");
    h2::write(&mut stream, SETTINGS, 0, ALL, &[]).expect("settings");
    let mut of = 1;
    while let Ok((kind, flags, _)) = h2::read(&mut stream) {
        if kind != HEADERS || flags & END == 0 {
            continue;
        }
        for _ in 0..times {
            // `:status`, and a field.
            let link = [h2::field(0, "link"), h2::field(0, "</a>")[1..].to_vec()];
            let head = [h2::field(8, "103"), link.concat()].concat();
            if h2::write(&mut stream, HEADERS, WHOLE & !END, of, &head).is_err() {
                return;
            }
        }
        if h2::write(&mut stream, HEADERS, WHOLE, of, &[OK]).is_err() {
            return;
        }
        of += 2;
    }
}

/// h2 keeps all of them until the final one, because hyper does not ask for them.
#[test]
fn endless_interim_answers_are_refused() {
    for (times, status) in [(3, " 200"), (FLOOD, " 502")] {
        let address = backend(move |stream| interim(&stream, times));
        let gateway = in_front_of("h2c", &address, "");
        for _ in 0..3 {
            gateway.curl("a.test", "/", "").says(status);
        }
        let told = log(&gateway).contains("interim answers");
        assert_eq!(told, times == FLOOD, "{}", log(&gateway));
    }
}
