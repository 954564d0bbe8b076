//! One item or many: each item of a batch has its own answer or error, in its place.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use hsmux_pool::together;
use serde::de::{Deserialize, Deserializer, MapAccess};

use super::beside::{self, Beside};
use super::bounded::Bounded;
use super::in_order::in_order;
use super::turn::Turn;
use super::{Data, Reply, loose};
use crate::refusal::Refusal;

/// The body of a request that may be a batch.
pub struct Batch<Item> {
    single: Item,
    whole: Whole<Item>,
}

/// What is said of a batch outside of its items, and these.
struct Whole<Item> {
    entries: Option<Bounded<Entry<Item>, MOST>>,
    partial_failure_response_code: Option<u16>,
}

struct Entry<Item> {
    item: Item,
    named: Named,
}

/// What is said of an item that is not its own.
#[derive(Default)]
struct Named {
    reference: Option<String>,
}

impl<'de, Item: Deserialize<'de>> Deserialize<'de> for Batch<Item> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (single, whole) = beside::read(deserializer)?;
        Ok(Self { single, whole })
    }
}

impl<'de, Item: Deserialize<'de>> Deserialize<'de> for Entry<Item> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (item, named) = beside::read(deserializer)?;
        Ok(Self { item, named })
    }
}

/// An item needs no default.
impl<Item> Default for Whole<Item> {
    fn default() -> Self {
        Self {
            entries: None,
            partial_failure_response_code: None,
        }
    }
}

impl<'de, Item: Deserialize<'de>> Beside<'de> for Whole<Item> {
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

impl<'de> Beside<'de> for Named {
    fn take<A: MapAccess<'de>>(&mut self, member: &str, map: &mut A) -> Result<bool, A::Error> {
        let own = member == "reference";
        if own {
            self.reference = map.next_value()?;
        }
        Ok(own)
    }
}

/// Items of one batch that wait at the pool at once: as many as keep every lane busy, and few enough
/// that one client's batch does not fill the queue.
const AT_ONCE: usize = 32;

/// Who is refused later than this has waited for a token, and not only found the queue full.
const LONG: Duration = Duration::from_secs(1);

/// Items of one batch: of the shortest a body has room for millions, each of which takes much more than its text.
pub const MOST: usize = 10_000;

/// What items that fail mean for the status of their batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failures {
    /// 400 or 500, or what the client has asked for: of `encrypt` and `decrypt`.
    Decide,
    /// 200 all the same: of all others.
    AreSaid,
}

impl<Item> Batch<Item> {
    /// What the request says outside of its items.
    pub fn whole(&self) -> &Item {
        &self.single
    }

    /// The same, to be completed.
    pub fn whole_mut(&mut self) -> &mut Item {
        &mut self.single
    }

    /// How many there are, one where it is no batch.
    pub fn items(&self) -> usize {
        let entries = self.whole.entries.as_ref();
        entries.map_or(1, |Bounded(entries)| entries.len())
    }

    /// The items of a batch, in their order; none of a single one.
    pub fn entries_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Item> {
        let entries = self.whole.entries.as_mut();
        let entries = entries.map_or(&mut [][..], |Bounded(entries)| entries);
        entries.iter_mut().map(|entry| &mut entry.item)
    }

    /// Does `work` for the item or for each of the batch.
    pub async fn answer<Working>(
        self,
        failures: Failures,
        work: impl Fn(Item) -> Working,
    ) -> Result<Reply, Refusal>
    where
        Working: Future<Output = Result<Data, Refusal>>,
    {
        let Some(Bounded(entries)) = self.whole.entries else {
            return Ok(Reply::ok(work(self.single).await?));
        };
        if entries.is_empty() {
            return Err(Refusal::bad("missing batch input to process"));
        }
        let turn = &Turn::new();
        let in_vain = &InVain::default();
        let each = entries.into_iter().map(|Entry { item, named }| {
            // Passed on from here as a pointer.
            let working = Box::pin(work(item));
            async move {
                turn.own().await;
                (named.reference, in_vain.unless(working).await)
            }
        });
        let mut all = pin!(in_order(each, AT_ONCE));
        let answers = poll_fn(|context| {
            turn.begin();
            together(|| all.as_mut().poll(context))
        });
        let answers = answers.await;
        let status = status(&answers, failures, self.whole.partial_failure_response_code)?;
        Ok(Reply::Batch(status, answers.into_iter().map(one).collect()))
    }
}

/// What an item has waited for in vain, for a long time: nobody serves now, and those behind it do not wait for
/// that anew.
#[derive(Default)]
struct InVain(OnceLock<Refusal>);

impl InVain {
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

type Answer = (Option<String>, Result<Data, Refusal>);

fn one((reference, result): Answer) -> Data {
    let mut members =
        result.unwrap_or_else(|refusal| Data::from([("error", refusal.text().into())]));
    if let Some(reference) = reference {
        members.add("reference", reference);
    }
    members
}

/// 200 where all went well; else the client's error before ours, unless the client has said which status
/// it wants for a batch of which a part went well.
fn status(
    answers: &[Answer],
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
    // Nothing of it was done, and all of it may be later: as for a single item.
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
    // A status below 200 would not be the last word.
    let wanted = partial.filter(|code| some_succeeded && (200..=599).contains(code));
    let wanted = wanted.and_then(|code| StatusCode::from_u16(code).ok());
    Ok(wanted.unwrap_or(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Item {
        text: Option<String>,
    }

    async fn answer(json: &str) -> Result<Reply, Refusal> {
        answer_with(Failures::Decide, json).await
    }

    async fn answer_with(failures: Failures, json: &str) -> Result<Reply, Refusal> {
        let batch: Batch<Item> = serde_json::from_str(json).unwrap();
        let work = |item: Item| async move {
            match item.text.as_deref() {
                Some("busy") => Err(Refusal::later("busy", None)),
                Some(text) => Ok([("length", text.len().into())].into()),
                None => Err(Refusal::bad("missing text")),
            }
        };
        batch.answer(failures, work).await
    }

    fn parts(reply: Reply) -> (u16, String) {
        let (status, text) = match reply {
            Reply::Data(status, data) => (status, serde_json::to_string(&data)),
            Reply::Batch(status, all) => (status, serde_json::to_string(&all)),
            Reply::Nothing => (StatusCode::NO_CONTENT, Ok(String::new())),
        };
        (status.as_u16(), text.unwrap())
    }

    #[tokio::test]
    async fn one_item_is_answered_as_such() {
        let reply = answer(r#"{"text": "abc"}"#).await.unwrap();
        assert_eq!(parts(reply), (200, r#"{"length":3}"#.into()));
        assert_eq!(answer("{}").await.unwrap_err().status.as_u16(), 400);
    }

    #[tokio::test]
    async fn each_item_of_a_batch_has_its_answer_in_its_place() {
        let json = r#"{"batch_input": [{"text": "a", "reference": "r"}, {}, {"text": "abc"}]}"#;
        let expected = r#"[{"length":1,"reference":"r"},{"error":"missing text"},{"length":3}]"#;
        assert_eq!(parts(answer(json).await.unwrap()), (400, expected.into()));
        let asked = json.replacen('{', r#"{"partial_failure_response_code": 207, "#, 1);
        assert_eq!(parts(answer(&asked).await.unwrap()).0, 207);
        let said = answer_with(Failures::AreSaid, &asked).await.unwrap();
        assert_eq!(parts(said), (200, expected.into()));
    }

    #[tokio::test]
    async fn only_a_last_word_is_a_status_that_a_client_may_ask_for() {
        for code in [0, 99, 100, 199, 600, 1000] {
            let wanted = format!(r#"{{"partial_failure_response_code": {code}, "#);
            let json = r#"{"batch_input": [{"text": "a"}, {}]}"#.replacen('{', &wanted, 1);
            assert_eq!(parts(answer(&json).await.unwrap()).0, 400, "{code}");
        }
    }

    /// Each of them is ready at once and takes its time.
    #[tokio::test]
    async fn others_have_their_turn_between_the_items_of_a_batch() {
        let items = vec!["{}"; 100].join(",");
        let json = format!(r#"{{"batch_input": [{items}]}}"#);
        let batch: Batch<Item> = serde_json::from_str(&json).unwrap();
        let work = |_: Item| async move {
            std::thread::sleep(Duration::from_millis(1));
            Ok(Data::default())
        };
        let mut answer = pin!(batch.answer(Failures::Decide, work));
        let mut turns = 0;
        while futures_util::poll!(answer.as_mut()).is_pending() {
            turns += 1;
            tokio::task::yield_now().await;
        }
        assert!(turns >= 20, "{turns}");
    }

    #[tokio::test]
    async fn what_some_items_have_waited_for_in_vain_the_others_do_not_wait_for() {
        let items = vec!["{}"; 3 * AT_ONCE].join(",");
        let json = format!(r#"{{"batch_input": [{items}]}}"#);
        let batch: Batch<Item> = serde_json::from_str(&json).unwrap();
        let waited = &std::cell::Cell::new(0);
        let work = |_: Item| async move {
            waited.set(waited.get() + 1);
            tokio::time::sleep(LONG).await;
            Err(Refusal::later("no member is in service", None))
        };
        let refused = batch.answer(Failures::Decide, work).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(waited.get(), AT_ONCE);
    }

    #[tokio::test]
    async fn what_no_item_knows_is_read_over_and_names_may_be_escaped() {
        let json = r#"{"\u0062atch_input": [{"x": {"y": [1]}, "text": "a", "r\u0065ference": "r"}], "z": null}"#;
        let expected = r#"[{"length":1,"reference":"r"}]"#;
        assert_eq!(parts(answer(json).await.unwrap()), (200, expected.into()));
        for wrong in [
            r#"{"batch_input": {}}"#,
            r#"{"batch_input": [1]}"#,
            "[]",
            "1",
        ] {
            assert!(
                serde_json::from_str::<Batch<Item>>(wrong).is_err(),
                "{wrong}"
            );
        }
    }

    #[tokio::test]
    async fn the_status_of_a_batch() {
        let all_bad = r#"{"batch_input": [{}], "partial_failure_response_code": 200}"#;
        assert_eq!(parts(answer(all_bad).await.unwrap()).0, 400);
        let ours = r#"{"batch_input": [{"text": "busy"}, {"text": "a"}]}"#;
        assert_eq!(parts(answer(ours).await.unwrap()).0, 500);
        let all_busy = r#"{"batch_input": [{"text": "busy"}, {"text": "busy"}]}"#;
        assert!(answer(all_busy).await.unwrap_err().retry_after.is_some());
        assert!(answer(r#"{"batch_input": []}"#).await.is_err());
    }
}
