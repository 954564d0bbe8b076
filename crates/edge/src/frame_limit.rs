//! Limit on the small frames that a peer may send over HTTP/2.
//!
//! h2 itself limits empty DATA frames, CONTINUATION frames, and streams that are reset before they are accepted. It
//! does not limit:
//! - PING and SETTINGS frames, each of which it answers;
//! - WINDOW_UPDATE frames, and resets of accepted streams;
//! - acknowledgments of a PING that it has not sent, each of which it logs;
//! - interim answers (1xx) of a server: it keeps their heads, which hyper does not ask for.

use std::time::Instant;

/// Small frames that a peer may send at once, and each second. Each DATA or HEADERS frame sent to the peer allows one
/// more: gRPC measures a connection by a PING for each part that it receives.
const BURST: f64 = 1000.0;
const EACH_SECOND: f64 = 100.0;

/// Share of a small frame that a WINDOW_UPDATE frame counts for: peers send several for each part that they receive.
const UPDATE: f64 = 0.1;

/// Heads that a server may send for each request, trailers not counted: interim answers and the final one.
/// `HEADS_AT_ONCE` limits a burst of them.
const HEADS: u32 = 4;
const HEADS_AT_ONCE: u32 = 400;

/// RFC 9113, section 6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;

/// The first bytes of a client that speaks HTTP/2 (section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length, type, flags and stream (section 4.1).
const HEAD: usize = 9;

/// The frames of one connection, and how many more its peer may send.
pub struct FrameLimit {
    protocol: Protocol,
    received: Frames,
    sent: Frames,
    allowed: f64,
    since: Instant,
    /// PING frames that the peer has not answered.
    pings: u32,
    /// Heads that a server may still send. `None` for a client, whose heads h2 limits.
    heads: Option<u32>,
}

/// The peer's protocol.
enum Protocol {
    /// So many bytes of the preface have come.
    Unknown(usize),
    Http2,
    /// A protocol without these frames.
    Other,
}

/// Position in a sequence of frames.
struct Frames {
    /// Bytes of the payload that are still to come.
    skip: usize,
    head: [u8; HEAD],
    known: usize,
}

impl FrameLimit {
    /// The limit of a client, whose first bytes say whether it speaks HTTP/2.
    pub fn for_client() -> Self {
        Self::new(Protocol::Unknown(0), 0, None)
    }

    /// The limit of a server of HTTP/2.
    pub fn for_server() -> Self {
        Self::new(Protocol::Http2, PREFACE.len(), Some(HEADS_AT_ONCE))
    }

    fn new(protocol: Protocol, preface: usize, heads: Option<u32>) -> Self {
        Self {
            protocol,
            received: Frames::after(0),
            sent: Frames::after(preface),
            allowed: BURST,
            since: Instant::now(),
            pings: 0,
            heads,
        }
    }

    /// Whether the peer is known to speak HTTP/2.
    pub fn is_http2(&self) -> bool {
        matches!(self.protocol, Protocol::Http2)
    }

    /// Counts bytes from the peer. `false`: too many small frames or heads, or an acknowledgment of no PING.
    #[must_use]
    pub fn receive(&mut self, mut bytes: &[u8]) -> bool {
        if let Protocol::Unknown(known) = &mut self.protocol {
            let preface = &PREFACE[*known..];
            let come = preface.len().min(bytes.len());
            let (begin, rest) = bytes.split_at(come);
            if begin != &preface[..come] {
                self.protocol = Protocol::Other;
            } else if come < preface.len() {
                *known += come;
                return true;
            } else {
                self.protocol = Protocol::Http2;
                bytes = rest;
            }
        }
        matches!(self.protocol, Protocol::Other) || self.count(bytes)
    }

    fn count(&mut self, bytes: &[u8]) -> bool {
        let (mut small, mut heads, mut acks) = (0.0, 0, 0);
        self.received.each(bytes, |kind, flags| {
            heads += u32::from(kind == HEADERS && flags & END_STREAM == 0);
            acks += u32::from(kind == PING && flags & ACK != 0);
            small += match kind {
                PING | SETTINGS if flags & ACK == 0 => 1.0,
                RST_STREAM => 1.0,
                WINDOW_UPDATE => UPDATE,
                _ => 0.0,
            };
        });
        let Some(pings) = self.pings.checked_sub(acks) else {
            return false;
        };
        self.pings = pings;
        if let Some(left) = &mut self.heads {
            let Some(fewer) = left.checked_sub(heads) else {
                return false;
            };
            *left = fewer;
        }
        if small <= 0.0 {
            return true;
        }
        let now = Instant::now();
        let seconds = now.duration_since(std::mem::replace(&mut self.since, now));
        self.allow(seconds.as_secs_f64() * EACH_SECOND);
        self.allowed -= small;
        self.allowed >= 0.0
    }

    /// Counts bytes sent to the peer.
    pub fn send(&mut self, bytes: &[u8]) {
        if matches!(self.protocol, Protocol::Other) {
            return;
        }
        let (mut parts, mut heads, mut pings) = (0, 0, 0u32);
        self.sent.each(bytes, |kind, flags| {
            parts += u32::from(matches!(kind, DATA | HEADERS));
            heads += u32::from(kind == HEADERS);
            pings += u32::from(kind == PING && flags & ACK == 0);
        });
        self.pings = self.pings.saturating_add(pings);
        self.allow(f64::from(parts));
        if let Some(left) = &mut self.heads {
            *left = (*left + HEADS * heads).min(HEADS_AT_ONCE);
        }
    }

    fn allow(&mut self, more: f64) {
        self.allowed = (self.allowed + more).min(BURST);
    }
}

impl Frames {
    fn after(skip: usize) -> Self {
        Self {
            skip,
            head: [0; HEAD],
            known: 0,
        }
    }

    /// Calls `tell` with the type and the flags of each frame whose head ends in `bytes`.
    fn each(&mut self, mut bytes: &[u8], mut tell: impl FnMut(u8, u8)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEAD - self.known).min(bytes.len());
            self.head[self.known..][..taken].copy_from_slice(&bytes[..taken]);
            self.known += taken;
            bytes = &bytes[taken..];
            if self.known == HEAD {
                let [high, middle, low, kind, flags, ..] = self.head;
                self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.known = 0;
                tell(kind, flags);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 0];
        // The payload looks like heads of frames.
        frame.extend((0..length).map(|at| [0, 0, 8, PING][usize::from(at) % 4]));
        frame
    }

    /// A connection of each role, before the first frame of its peer.
    fn begun() -> [FrameLimit; 2] {
        let (mut client, mut server) = (FrameLimit::for_client(), FrameLimit::for_server());
        assert!(client.receive(PREFACE));
        server.send(PREFACE);
        [client, server]
    }

    #[test]
    fn small_frames_are_counted_in_any_chunks() {
        for (kind, length) in [(PING, 8), (SETTINGS, 0), (RST_STREAM, 4)] {
            for part in [1, 7, 4096] {
                for mut limit in begun() {
                    let frames = frame(kind, 0, length).repeat(2000);
                    let end = frames.chunks(part).position(|part| !limit.receive(part));
                    let end = end.expect("an end") * part / (HEAD + usize::from(length));
                    assert!((900..2000).contains(&end), "{kind} {part}: {end}");
                }
            }
        }
    }

    #[test]
    fn a_preface_is_recognised_in_any_chunks() {
        for part in [1, 5, 23, 24, 4096] {
            let mut limit = FrameLimit::for_client();
            let said = [PREFACE, &frame(PING, 0, 8).repeat(2000)].concat();
            assert!(said.chunks(part).any(|part| !limit.receive(part)), "{part}");
        }
    }

    #[test]
    fn a_client_without_http2_is_not_limited() {
        let pings = frame(PING, 0, 8).repeat(2000);
        for begin in [
            &b"POST / HTTP/1.1\r\n\r\n"[..],
            b"PRI * HTTP/1.1\r\n\r\n",
            b"\0",
        ] {
            for part in [1, 5, 4096] {
                let mut limit = FrameLimit::for_client();
                let said = [begin, &pings].concat();
                assert!(
                    said.chunks(part).all(|part| limit.receive(part)),
                    "{begin:?}"
                );
                limit.send(&pings);
            }
        }
    }

    #[test]
    fn other_frames_are_not_limited() {
        let trailers = 4 | END_STREAM;
        for mut limit in begun() {
            for (kind, flags) in [(DATA, 0), (HEADERS, trailers), (SETTINGS, ACK)] {
                assert!(limit.receive(&frame(kind, flags, 200).repeat(5000)));
            }
        }
    }

    #[test]
    fn an_acknowledgment_of_no_ping_is_refused() {
        for mut limit in begun() {
            let pong = frame(PING, ACK, 8);
            limit.send(&frame(PING, 0, 8).repeat(3));
            limit.send(&pong);
            assert!(limit.receive(&pong.repeat(3)));
            assert!(!limit.receive(&pong));
        }
    }

    #[test]
    fn heads_of_a_server_are_limited_per_request() {
        let [mut client, mut server] = begun();
        let head = frame(HEADERS, 4, 100);
        assert!(client.receive(&head.repeat(5000)));
        for _ in 0..5000 {
            server.send(&frame(HEADERS, 4 | END_STREAM, 50));
            assert!(server.receive(&head.repeat(HEADS as usize)));
        }
        assert!(server.receive(&head.repeat((HEADS_AT_ONCE - HEADS) as usize)));
        assert!(!server.receive(&head));
    }

    #[test]
    fn window_updates_count_for_a_tenth() {
        let update = frame(WINDOW_UPDATE, 0, 4);
        for mut limit in begun() {
            assert!(limit.receive(&update.repeat(9000)));
            assert!(!limit.receive(&update.repeat(2000)));
        }
        for mut limit in begun() {
            for _ in 0..5000 {
                limit.send(&frame(DATA, 0, 100));
                assert!(limit.receive(&update.repeat(8)));
            }
        }
    }

    #[test]
    fn a_ping_for_each_received_frame_is_allowed() {
        for mut limit in begun() {
            for _ in 0..5000 {
                limit.send(&frame(DATA, 0, 100));
                assert!(limit.receive(&frame(PING, 0, 8)));
            }
        }
    }
}
