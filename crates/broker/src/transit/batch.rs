//! One item or many: each item of a batch has its own answer or error, in its place.

use std::future::{Future, poll_fn};
use std::pin::pin;

use axum::http::StatusCode;
use futures_util::{StreamExt, stream};
use hsmux_pool::together;
use serde::Deserialize;

use super::{Data, Reply, loose};
use crate::refusal::Refusal;

/// The body of a request that may be a batch.
#[derive(Deserialize)]
pub struct Batch<Item> {
    #[serde(rename = "batch_input", default = "none")]
    entries: Option<Vec<Entry<Item>>>,
    #[serde(default, deserialize_with = "loose::value")]
    partial_failure_response_code: Option<u16>,
    #[serde(flatten)]
    single: Item,
}

#[derive(Deserialize)]
struct Entry<Item> {
    reference: Option<String>,
    #[serde(flatten)]
    item: Item,
}

/// So that an item needs no default.
fn none<Item>() -> Option<Item> {
    None
}

/// Items of one batch that wait at the pool at once: as many as keep every lane busy, and few enough
/// that one client's batch does not fill the queue.
const AT_ONCE: usize = 32;

impl<Item> Batch<Item> {
    /// What the request says outside of its items.
    pub fn whole(&self) -> &Item {
        &self.single
    }

    /// Does `work` for the item or for each of the batch.
    pub async fn answer<Working>(self, work: impl Fn(Item) -> Working) -> Result<Reply, Refusal>
    where
        Working: Future<Output = Result<Data, Refusal>>,
    {
        let Some(entries) = self.entries else {
            return Ok(Reply::ok(work(self.single).await?));
        };
        if entries.is_empty() {
            return Err(Refusal::bad("missing batch input to process"));
        }
        let each = entries.into_iter().map(|Entry { reference, item }| {
            let working = work(item);
            async move { (reference, working.await) }
        });
        let mut all = pin!(stream::iter(each).buffered(AT_ONCE).collect::<Vec<_>>());
        let answers = poll_fn(|context| together(|| all.as_mut().poll(context))).await;
        let status = status(&answers, self.partial_failure_response_code)?;
        Ok(Reply::Batch(status, answers.into_iter().map(one).collect()))
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
fn status(answers: &[Answer], partial: Option<u16>) -> Result<StatusCode, Refusal> {
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
    let status = if failed().any(Refusal::is_clients) {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    let some_succeeded = failed().count() < answers.len();
    let wanted = partial.filter(|_| some_succeeded);
    Ok(wanted.map_or(status, |code| {
        StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Item {
        text: Option<String>,
    }

    async fn answer(json: &str) -> Result<Reply, Refusal> {
        let batch: Batch<Item> = serde_json::from_str(json).unwrap();
        let work = |item: Item| async move {
            match item.text.as_deref() {
                Some("busy") => Err(Refusal::later("busy", None)),
                Some(text) => Ok([("length", text.len().into())].into()),
                None => Err(Refusal::bad("missing text")),
            }
        };
        batch.answer(work).await
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
