//! The worker's end of a lane: read, execute, write.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hsmux_token::{Error, Outcome, Result, Token};

use crate::connection::Connection;
use crate::frame::{self, MAX_FRAME};
use crate::{Answer, Call, Item, Reply};

/// Longer than anyone waits; a deadline further off would overflow the clock.
const MAX_REMAINING: Duration = Duration::from_secs(24 * 3600);

/// Serves a token on one lane, on this thread, until the other end hangs up.
///
/// `version` is the one agreed for the worker as a whole.
pub fn serve_lane(stream: UnixStream, version: u16, token: &dyn Token) -> Result<()> {
    let mut lane = Connection::new(stream);
    let gone = |error: &dyn std::fmt::Display| Error::lost(format!("a lane: {error}"));
    loop {
        let frame = match lane.read(MAX_FRAME, None) {
            Ok(frame) => frame,
            Err(end) if end.is_end() => return Ok(()),
            Err(broken) => return Err(gone(&broken)),
        };
        let reply = Reply {
            epoch: 0,
            answer: answer(frame::decode_call(frame)?, token),
        };
        lane.write_with(|out| frame::encode_reply(version, &reply, out), None)
            .map_err(|broken| gone(&broken))?;
    }
}

fn answer(call: Call, token: &dyn Token) -> Answer {
    match call {
        Call::Execute(items) => {
            Answer::Results(items.iter().map(|item| execute(item, token)).collect())
        }
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

fn execute(item: &Item, token: &dyn Token) -> Result<Outcome> {
    let remaining = Duration::from_micros(item.remaining_us).min(MAX_REMAINING);
    token.execute(&item.operation, Instant::now() + remaining)
}
