//! The worker's end of a lane: read what has come, execute it together, write the answers in its order.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hsmux_token::{Error, Operation, Outcome, Result, Token};

use crate::connection::{Broken, Connection};
use crate::frame::{self, MAX_FRAME};
use crate::{Answer, Call, Item, Reply, fitted};

/// Longer than anyone waits; a deadline further off would overflow the clock.
const MAX_REMAINING: Duration = Duration::from_secs(24 * 3600);

/// An answer waits for those behind it no longer than this, which is less than waking its reader twice
/// costs: longer work is answered as it ends, so that the next request is here in time.
const TOGETHER: Duration = Duration::from_micros(40);

/// Serves a token on one lane, on this thread, until the other end hangs up.
///
/// `version` is the one agreed for the worker as a whole.
pub fn serve_lane(stream: UnixStream, version: u16, token: &dyn Token) -> Result<()> {
    let mut lane = Lane {
        connection: Connection::called(stream),
        version,
    };
    let mut ready = None;
    loop {
        let first = match lane.connection.read(MAX_FRAME, ready) {
            Ok(frame) => frame,
            Err(nothing) if nothing.is_late() => {
                token.discard_ready();
                ready = None;
                continue;
            }
            Err(end) if end.is_end() => return Ok(()),
            Err(broken) => return Err(gone(&broken)),
        };
        let mut next = Some(first);
        let mut round = Round::default();
        while let Some(frame) = next {
            match frame::decode_call(frame)? {
                Call::Execute(items) => round.add(items),
                other => {
                    std::mem::take(&mut round).run(&mut lane, token)?;
                    lane.write([answer(&other, token)])?;
                }
            }
            next = lane.connection.at_hand(MAX_FRAME).map_err(|e| gone(&e))?;
        }
        let last = round.run(&mut lane, token)?;
        ready = last.and_then(|last| token.make_ready(&last)).or(ready);
    }
}

struct Lane {
    connection: Connection,
    version: u16,
}

impl Lane {
    fn write(&mut self, answers: impl IntoIterator<Item = Answer>) -> Result<()> {
        let version = self.version;
        let encode = |out: &mut Vec<u8>| {
            answers
                .into_iter()
                .try_for_each(|answer| fitted::encode_reply(version, &Reply::new(0, answer), out))
        };
        let written = self.connection.write_with(encode, None);
        written.map_err(|broken| gone(&broken))
    }
}

/// The operations of the frames that have come together.
#[derive(Default)]
struct Round {
    operations: Vec<(Operation, Instant)>,
    /// How many of them each frame has.
    frames: Vec<usize>,
}

impl Round {
    fn add(&mut self, items: Vec<Item>) {
        let now = Instant::now();
        let timed = |item: Item| {
            let remaining = Duration::from_micros(item.remaining_us).min(MAX_REMAINING);
            (item.operation, now + remaining)
        };
        self.frames.push(items.len());
        self.operations.extend(items.into_iter().map(timed));
    }

    /// The last of them.
    fn run(mut self, lane: &mut Lane, token: &dyn Token) -> Result<Option<Operation>> {
        let mut answers = Answers {
            results: self.operations.iter().map(|_| None).collect(),
            frames: std::mem::take(&mut self.frames).into(),
            gone: 0,
        };
        let mut written = Ok(());
        let mut last = Instant::now();
        token.execute_all(&self.operations, &mut |place, result| {
            answers.put(place, result);
            if last.elapsed() >= TOGETHER && written.is_ok() {
                written = lane.write(answers.complete());
                last = Instant::now();
            }
        });
        written?;
        lane.write(answers.complete())?;
        Ok(self.operations.pop().map(|(last, _)| last))
    }
}

/// Results as they come in.
struct Answers {
    /// Of the frames that are not answered yet.
    results: VecDeque<Option<Result<Outcome>>>,
    frames: VecDeque<usize>,
    /// Results that are answered.
    gone: usize,
}

impl Answers {
    fn put(&mut self, place: usize, result: Result<Outcome>) {
        self.results[place - self.gone] = Some(result);
    }

    /// The answers to the frames of which all is done, as far as none before them is missing.
    fn complete(&mut self) -> impl Iterator<Item = Answer> {
        std::iter::from_fn(|| {
            let wanted = *self.frames.front()?;
            if self.results.range(..wanted).any(Option::is_none) {
                return None;
            }
            self.frames.pop_front();
            self.gone += wanted;
            Some(Answer::Results(
                self.results.drain(..wanted).flatten().collect(),
            ))
        })
    }
}

fn answer(call: &Call, token: &dyn Token) -> Answer {
    match call {
        Call::Info => Answer::Info((*token.info()).clone()),
        Call::Objects => match token.objects() {
            Ok(snapshot) => Answer::Objects((*snapshot).clone()),
            Err(error) => Answer::Failed(error),
        },
        Call::Look => token.look().map_or_else(Answer::Failed, Answer::Seen),
        Call::Pace => Answer::Pace(token.pace()),
        other => Answer::Failed(Error::protocol(format!(
            "{} is not for a worker",
            other.name()
        ))),
    }
}

fn gone(broken: &Broken) -> Error {
    Error::lost(format!("a lane: {broken}"))
}
