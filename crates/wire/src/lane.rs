//! The worker's end of a lane: reads frames and answers them, one after the other.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hsmux_token::{Error, Operation, Result, Token};

use crate::connection::{Broken, Connection};
use crate::frame::{self, MAX_FRAME};
use crate::{Answer, Call, Item, Reply, fitted};

/// Longer than anyone waits; a deadline further off would overflow the clock.
const MAX_REMAINING: Duration = Duration::from_secs(24 * 3600);

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
        let frame = match lane.connection.read(MAX_FRAME, ready) {
            Ok(frame) => frame,
            Err(nothing) if nothing.is_late() => {
                token.discard_ready();
                ready = None;
                continue;
            }
            Err(end) if end.is_end() => return Ok(()),
            Err(broken) => return Err(gone(&broken)),
        };
        match frame::decode_call(frame)? {
            Call::Execute(items) => {
                let last = lane.run(items, token)?;
                let last = last.filter(|_| lane.connection.is_idle());
                ready = last.and_then(|last| token.make_ready(&last)).or(ready);
            }
            other => lane.write(answer(&other, token))?,
        }
    }
}

struct Lane {
    connection: Connection,
    version: u16,
}

impl Lane {
    /// Carries out the operations of a frame, and answers it. Returns the last of them.
    fn run(&mut self, items: Vec<Item>, token: &dyn Token) -> Result<Option<Operation>> {
        let now = Instant::now();
        let timed = |item: Item| {
            let remaining = Duration::from_micros(item.remaining_us).min(MAX_REMAINING);
            (item.operation, now + remaining)
        };
        let mut operations: Vec<_> = items.into_iter().map(timed).collect();
        let mut results: Vec<_> = operations.iter().map(|_| None).collect();
        token.execute_all(&operations, &mut |place, result| {
            results[place] = Some(result);
        });
        self.write(Answer::Results(results.into_iter().flatten().collect()))?;
        Ok(operations.pop().map(|(last, _)| last))
    }

    fn write(&mut self, answer: Answer) -> Result<()> {
        let reply = Reply::new(0, answer);
        let version = self.version;
        let encode = |out: &mut Vec<u8>| fitted::encode_reply(version, &reply, out);
        let written = self.connection.write_with(encode, None);
        written.map_err(|broken| gone(&broken))
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
