//! Answers that are too long for a frame: their longest parts are left out, and the connection goes on.

use hsmux_token::{Error, Kind, Object, Outcome, Result};

use crate::frame::{self, MAX_FRAME};
use crate::{Answer, Reply};

/// Bytes of an answer besides its objects: the version, the label and all mechanisms of a token.
const AROUND: usize = 1 << 20;

/// Appends the frame of an answer. If that is too long, it loses its longest parts: results become errors, and objects
/// are left out. Anything else becomes an error.
pub(crate) fn encode_reply(version: u16, reply: &Reply, out: &mut Vec<u8>) -> Result<()> {
    let Err(error) = frame::encode_reply(version, reply, out) else {
        return Ok(());
    };
    let mut reply = fitted(reply.clone(), &error);
    let mut written = frame::encode_reply(version, &reply, out);
    while let Err(error) = &written
        && let Answer::Results(results) = &mut reply.answer
        && fail_longest(results, error)
    {
        written = frame::encode_reply(version, &reply, out);
    }
    written.or_else(|error| {
        let failed = Reply::new(reply.epoch, Answer::Failed(too_long(&error)));
        frame::encode_reply(version, &failed, out)
    })
}

fn fitted(mut reply: Reply, error: &Error) -> Reply {
    let left_out = match &mut reply.answer {
        Answer::Objects(snapshot) => {
            let left_out = leave_out_longest(&mut snapshot.objects);
            snapshot.is_partial |= left_out > 0;
            left_out
        }
        Answer::Catalogue(Some(view)) => leave_out_longest(&mut view.objects),
        _ => 0,
    };
    if left_out > 0 {
        tracing::warn!("the {left_out} longest objects are not shown: {error}");
    }
    reply
}

/// Leaves out the longest objects until the rest fits in a frame. Answers how many.
fn leave_out_longest(objects: &mut Vec<Object>) -> usize {
    let before = objects.len();
    let mut longest: Vec<_> = objects.iter().map(|one| (one.bytes(), one.id)).collect();
    // Sorted by id as well: every answer leaves out the same ones.
    longest.sort_unstable();
    let mut sum = 0_usize;
    let fits = longest.into_iter().take_while(|(bytes, _)| {
        sum = sum.saturating_add(*bytes);
        sum <= MAX_FRAME - AROUND
    });
    let last = fits.last();
    objects.retain(|one| last.is_some_and(|last| (one.bytes(), one.id) <= last));
    before - objects.len()
}

/// Replaces the longest result with an error; `false` if all are errors already.
fn fail_longest(results: &mut [Result<Outcome>], error: &Error) -> bool {
    let long = results.iter_mut().filter(|result| result.is_ok());
    let longest = long.max_by_key(|result| result.as_ref().map_or(0, Outcome::bytes));
    longest.is_some_and(|longest| {
        *longest = Err(too_long(error));
        true
    })
}

fn too_long(error: &Error) -> Error {
    let message = format!("the result is too long for one answer: {error}");
    Error::request(Kind::Invalid, message)
}
