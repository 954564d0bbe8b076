use hsmux_config::{Allowance, Limits};

use super::*;
use crate::auth::ClientIdentity;
use crate::http::UsageLimits;

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
    batch.answer(failures, None, work).await
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

/// Each of them is ready at once, and takes some time.
#[tokio::test]
async fn others_have_their_turn_between_the_items_of_a_batch() {
    let items = vec!["{}"; 100].join(",");
    let json = format!(r#"{{"batch_input": [{items}]}}"#);
    let batch: Batch<Item> = serde_json::from_str(&json).unwrap();
    let work = |_: Item| async move {
        std::thread::sleep(Duration::from_millis(1));
        Ok(Data::default())
    };
    let mut answer = pin!(batch.answer(Failures::Decide, None, work));
    let mut turns = 0;
    while futures_util::poll!(answer.as_mut()).is_pending() {
        turns += 1;
        tokio::task::yield_now().await;
    }
    assert!(turns >= 20, "{turns}");
}

#[tokio::test]
async fn what_some_items_have_waited_for_in_vain_the_others_do_not_wait_for() {
    let items = vec!["{}"; 100].join(",");
    let json = format!(r#"{{"batch_input": [{items}]}}"#);
    let batch: Batch<Item> = serde_json::from_str(&json).unwrap();
    let waited = &std::cell::Cell::new(0);
    let work = |_: Item| async move {
        waited.set(waited.get() + 1);
        tokio::time::sleep(LONG).await;
        Err(Refusal::later("no member is in service", None))
    };
    let refused = batch
        .answer(Failures::Decide, None, work)
        .await
        .unwrap_err();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    // All that wait at once.
    assert_eq!(waited.get(), 32);
}

#[tokio::test]
async fn a_batch_is_given_up_when_its_answers_have_no_room() {
    let usage = UsageLimits::new(Limits {
        each: Allowance {
            max_body: 0,
            ..Allowance::default()
        },
        max_bodies: 1 << 20,
        ..Limits::default()
    });
    let admit = |name: &str| {
        let client = ClientIdentity::new(vec![name.into()]);
        usage.admit(&client, name).unwrap()
    };
    let other = admit("other");
    other.hold(1).unwrap();
    let json = format!(r#"{{"batch_input": [{}]}}"#, vec!["{}"; 1000].join(","));
    let done = &std::cell::Cell::new(0);
    let answer = async || {
        let batch: Batch<Item> = serde_json::from_str(&json).unwrap();
        let work = |_: Item| async move {
            done.set(done.get() + 1);
            Ok([("text", "x".repeat(10_000).into())].into())
        };
        let admitted = admit("app");
        let failures = Failures::AreSaid;
        let answer = batch.answer(failures, Some(&admitted), work).await;
        (answer, admitted)
    };
    let (refused, admitted) = answer().await;
    assert_eq!(refused.unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
    assert!((20..100).contains(&done.get()), "{}", done.get());
    assert_eq!(usage.memory(), 1);
    // Alone it has room.
    drop((other, admitted));
    let (whole, _admitted) = answer().await;
    assert!(matches!(whole, Ok(Reply::Batch(_, all)) if all.len() == 1000));
    assert!(usage.memory() > 10_000_000);
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
