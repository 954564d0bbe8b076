//! One item or many: each item of a batch has an answer or an error at its position.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde::de::{Deserialize, Deserializer, MapAccess};

use super::batch_yield::BatchYield;
use super::bounded_list::BoundedList;
use super::extra_members::{self, ExtraMembers};
use super::in_order::in_order;
use super::{Data, Reply, loose};
use crate::http::AdmittedRequest;
use crate::refusal::Refusal;

/// The body of a request that may be a batch.
pub struct Batch<Item> {
    single: Item,
    whole: BatchFields<Item>,
}

/// The fields of a batch beside its items, and the items.
struct BatchFields<Item> {
    entries: Option<BoundedList<BatchItem<Item>, MOST>>,
    partial_failure_response_code: Option<u16>,
}

struct BatchItem<Item> {
    item: Item,
    named: ItemReference,
}

/// The field of an item that the operation does not read.
#[derive(Default)]
struct ItemReference {
    reference: Option<String>,
}

impl<'de, Item: Deserialize<'de>> Deserialize<'de> for Batch<Item> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (single, whole) = extra_members::read(deserializer)?;
        Ok(Self { single, whole })
    }
}

impl<'de, Item: Deserialize<'de>> Deserialize<'de> for BatchItem<Item> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (item, named) = extra_members::read(deserializer)?;
        Ok(Self { item, named })
    }
}

/// An item needs no default.
impl<Item> Default for BatchFields<Item> {
    fn default() -> Self {
        Self {
            entries: None,
            partial_failure_response_code: None,
        }
    }
}

impl<'de, Item: Deserialize<'de>> ExtraMembers<'de> for BatchFields<Item> {
    fn take<A: MapAccess<'de>>(&mut self, member: &str, map: &mut A) -> Result<bool, A::Error> {
        /// A number, as the dialect's clients write it.
        #[derive(serde::Deserialize)]
        #[serde(transparent)]
        struct Code(#[serde(deserialize_with = "loose::value")] Option<u16>);

        match member {
            "batch_input" => self.entries = map.next_value()?,
            "partial_failure_response_code" => {
                let Code(code) = map.next_value()?;
                self.partial_failure_response_code = code;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl<'de> ExtraMembers<'de> for ItemReference {
    fn take<A: MapAccess<'de>>(&mut self, member: &str, map: &mut A) -> Result<bool, A::Error> {
        let own = member == "reference";
        if own {
            self.reference = map.next_value()?;
        }
        Ok(own)
    }
}

/// Items of one batch that wait at the pool at once: enough to keep every lane busy, and few enough to leave the
/// queue to other clients.
const AT_ONCE: usize = 32;

/// A refusal after this time means that the item has waited for a token; an earlier one means a full queue.
const LONG: Duration = Duration::from_secs(1);

/// The limit of items in a batch: a body has room for millions of short ones, each of which takes more memory than
/// its text.
pub const MOST: usize = 10_000;

/// The effect of failed items on the status of their batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failures {
    /// 400 or 500, or the status in the request: for `encrypt` and `decrypt`.
    Decide,
    /// The status is 200: for all other operations.
    AreSaid,
}

impl<Item> Batch<Item> {
    /// The fields of the request outside of its items.
    pub fn whole(&self) -> &Item {
        &self.single
    }

    /// The same, to be completed.
    pub fn whole_mut(&mut self) -> &mut Item {
        &mut self.single
    }

    /// The number of items, one for a single item.
    pub fn items(&self) -> usize {
        let entries = self.whole.entries.as_ref();
        entries.map_or(1, |BoundedList(entries)| entries.len())
    }

    /// The items of a batch in order; none for a single item.
    pub fn entries_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Item> {
        let entries = self.whole.entries.as_mut();
        let entries = entries.map_or(&mut [][..], |BoundedList(entries)| entries);
        entries.iter_mut().map(|entry| &mut entry.item)
    }

    /// Does `work` for each item. Items and their answers count as memory of the request; if that is exhausted, the
    /// remaining items are dropped.
    pub async fn answer<Working>(
        self,
        failures: Failures,
        admitted: Option<&AdmittedRequest>,
        work: impl Fn(Item) -> Working,
    ) -> Result<Reply, Refusal>
    where
        Working: Future<Output = Result<Data, Refusal>>,
    {
        let Some(BoundedList(entries)) = self.whole.entries else {
            return Ok(Reply::ok(work(self.single).await?));
        };
        if entries.is_empty() {
            return Err(Refusal::bad("missing batch input to process"));
        }
        let hold = |bytes| admitted.map_or(Ok(()), |admitted| admitted.hold(bytes));
        hold(entries.len() * (size_of::<BatchItem<Item>>() + size_of::<ItemAnswer>()))?;
        let turn = &BatchYield::new();
        let in_vain = &SharedFailure::default();
        let no_room = &OnceLock::new();
        let each = entries.into_iter().map(|BatchItem { item, named }| {
            // From here on only a pointer moves.
            let working = Box::pin(work(item));
            async move {
                turn.own().await;
                if let Some(refusal) = no_room.get() {
                    return (named.reference, Err(Refusal::clone(refusal)));
                }
                let answer = (named.reference, in_vain.unless(working).await);
                if let Err(refusal) = hold(size(&answer)) {
                    let _ = no_room.set(refusal);
                }
                answer
            }
        });
        let mut all = pin!(in_order(each, AT_ONCE));
        let answers = poll_fn(|context| {
            turn.begin();
            let answers = all.as_mut().poll(context);
            match no_room.get() {
                Some(refusal) => Poll::Ready(Err(Refusal::clone(refusal))),
                None => answers.map(Ok),
            }
        });
        let answers = answers.await?;
        let status = status(&answers, failures, self.whole.partial_failure_response_code)?;
        Ok(Reply::Batch(status, answers.into_iter().map(one).collect()))
    }
}

/// The refusal of an item after a long wait. No member serves now, so the items behind it do not wait again.
#[derive(Default)]
struct SharedFailure(OnceLock<Refusal>);

impl SharedFailure {
    async fn unless(
        &self,
        working: impl Future<Output = Result<Data, Refusal>>,
    ) -> Result<Data, Refusal> {
        if let Some(refusal) = self.0.get() {
            return Err(refusal.clone());
        }
        let begun = Instant::now();
        let answer = working.await;
        if let Err(refusal) = &answer
            && refusal.retry_after.is_some()
            && begun.elapsed() >= LONG
        {
            let _ = self.0.set(refusal.clone());
        }
        answer
    }
}

type ItemAnswer = (Option<String>, Result<Data, Refusal>);

/// The approximate size in memory, in bytes.
fn size((reference, result): &ItemAnswer) -> usize {
    let reference = reference.as_ref().map_or(0, String::len);
    let result = result.as_ref();
    reference + result.map_or_else(|refusal| refusal.text().len(), Data::size)
}

fn one((reference, result): ItemAnswer) -> Data {
    let mut members =
        result.unwrap_or_else(|refusal| Data::from([("error", refusal.text().into())]));
    if let Some(reference) = reference {
        members.add("reference", reference);
    }
    members
}

/// 200 if all went well; else the client's error before ours, unless the request names a status for partial failures.
fn status(
    answers: &[ItemAnswer],
    failures: Failures,
    partial: Option<u16>,
) -> Result<StatusCode, Refusal> {
    let failed = || {
        answers
            .iter()
            .filter_map(|(_, result)| result.as_ref().err())
    };
    if failed().next().is_none() {
        return Ok(StatusCode::OK);
    }
    // Nothing was done, and a retry may succeed: the same as for a single item.
    if failed().count() == answers.len()
        && let Some(later) = failed().find(|refusal| refusal.retry_after.is_some())
    {
        return Err(later.clone());
    }
    if failures == Failures::AreSaid {
        return Ok(StatusCode::OK);
    }
    let status = if failed().any(Refusal::is_clients) {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    let some_succeeded = failed().count() < answers.len();
    // A status below 200 is not final.
    let wanted = partial.filter(|code| some_succeeded && (200..=599).contains(code));
    let wanted = wanted.and_then(|code| StatusCode::from_u16(code).ok());
    Ok(wanted.unwrap_or(status))
}

#[cfg(test)]
mod tests;
