//! Floods of small frames over HTTP/2.
//!
//! h2 itself limits empty DATA frames, CONTINUATION frames, and streams that are reset before they are accepted. It
//! answers any number of PING and SETTINGS frames, and takes any number of WINDOW_UPDATE frames and later resets.

use std::time::Instant;

/// Small frames that a client may send at once, and each second. Each DATA or HEADERS frame that it is sent allows one
/// more: clients of gRPC measure the connection by a PING for each part that they receive.
const BURST: f64 = 1000.0;
const EACH_SECOND: f64 = 100.0;

/// A WINDOW_UPDATE frame counts for so much of a small frame: clients send several for each part that they receive.
const UPDATE: f64 = 0.1;

/// RFC 9113, section 6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;

/// What a client says before its first frame (section 3.4).
const PREFACE: usize = 24;
/// Length, type, flags and stream (section 4.1).
const HEAD: usize = 9;

/// The frames of one connection.
pub struct Flood {
    received: Frames,
    sent: Frames,
    allowed: f64,
    since: Instant,
}

/// Where in a sequence of frames we are.
struct Frames {
    /// Bytes that are no head.
    skip: usize,
    head: [u8; HEAD],
    known: usize,
}

impl Flood {
    /// Of a new connection.
    pub fn new() -> Self {
        Self {
            received: Frames::after(PREFACE),
            sent: Frames::after(0),
            allowed: BURST,
            since: Instant::now(),
        }
    }

    /// Looks at what the client sends; `false`: it has sent too many small frames.
    pub fn receive(&mut self, bytes: &[u8]) -> bool {
        let mut small = 0.0;
        self.received.each(bytes, |kind, flags| {
            small += match kind {
                PING | SETTINGS if flags & ACK == 0 => 1.0,
                RST_STREAM => 1.0,
                WINDOW_UPDATE => UPDATE,
                _ => 0.0,
            };
        });
        if small <= 0.0 {
            return true;
        }
        let now = Instant::now();
        let seconds = now.duration_since(std::mem::replace(&mut self.since, now));
        self.allow(seconds.as_secs_f64() * EACH_SECOND);
        self.allowed -= small;
        self.allowed >= 0.0
    }

    /// Looks at what the client is sent.
    pub fn send(&mut self, bytes: &[u8]) {
        let mut parts: u32 = 0;
        self.sent.each(bytes, |kind, _| {
            parts += u32::from(matches!(kind, DATA | HEADERS));
        });
        self.allow(f64::from(parts));
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

    /// Tells of the type and the flags of each frame whose head ends in `bytes`.
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
        // What looks like heads of frames and is none.
        frame.extend((0..length).map(|at| [0, 0, 8, PING][usize::from(at) % 4]));
        frame
    }

    fn begun() -> Flood {
        let mut flood = Flood::new();
        assert!(flood.receive(&[PING; PREFACE]));
        flood
    }

    #[test]
    fn frames_that_ask_for_an_answer_are_counted_however_they_arrive() {
        for (kind, length) in [(PING, 8), (SETTINGS, 0), (RST_STREAM, 4)] {
            for part in [1, 7, 4096] {
                let mut flood = begun();
                let frames = frame(kind, 0, length).repeat(2000);
                let end = frames.chunks(part).position(|part| !flood.receive(part));
                let end = end.expect("an end") * part / (HEAD + usize::from(length));
                assert!((900..2000).contains(&end), "{kind} {part}: {end}");
            }
        }
    }

    #[test]
    fn other_frames_are_free() {
        let mut flood = begun();
        for (kind, flags) in [(DATA, 0), (HEADERS, 4), (PING, ACK), (SETTINGS, ACK)] {
            assert!(flood.receive(&frame(kind, flags, 200).repeat(5000)));
        }
    }

    #[test]
    fn updates_of_windows_count_for_a_tenth() {
        let update = frame(WINDOW_UPDATE, 0, 4);
        assert!(begun().receive(&update.repeat(9000)));
        assert!(!begun().receive(&update.repeat(11_000)));
        let mut flood = begun();
        for _ in 0..5000 {
            flood.send(&frame(DATA, 0, 100));
            assert!(flood.receive(&update.repeat(8)));
        }
    }

    #[test]
    fn a_client_may_measure_what_it_is_sent() {
        let mut flood = begun();
        for _ in 0..5000 {
            flood.send(&frame(DATA, 0, 100));
            assert!(flood.receive(&frame(PING, 0, 8)));
        }
    }
}
