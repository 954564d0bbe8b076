use std::time::Duration;

use serde_json::json;

use super::*;

fn client() -> Arc<Actor> {
    Arc::new(Actor::client("token:app", "192.0.2.7:50412"))
}

fn line(event: &Event) -> Value {
    serde_json::to_value(event).unwrap()
}

fn received(event: &Event) -> Event {
    Event::of_service("broker", &event.to_bytes()).unwrap()
}

fn of(fields: &Value) -> Result<Event> {
    Event::of_service("broker", fields.to_string().as_bytes())
}

#[test]
fn an_event_of_a_service_has_its_mark_and_nothing_else_changes() {
    let mut fields = Map::new();
    fields.insert("key".into(), "app".into());
    let act = Event::act(&client(), "broker-key-rotate", fields).request("r1");
    let key_use = Event::key_use(&client(), "sign", "app")
        .version(Some(3))
        .took(70)
        .outcome("busy");
    for event in [act, key_use] {
        let mut marked = line(&event);
        assert!(
            marked.get("service").is_none(),
            "the daemon's own: {marked}"
        );
        marked["service"] = "broker".into();
        let received = received(&event);
        assert_eq!(line(&received), marked);
        let apart = event.time.duration_since(received.time).unwrap();
        assert!(apart < Duration::from_micros(1), "{apart:?}");
    }
}

#[test]
fn a_service_cannot_use_fields_of_the_line_nor_another_mark() {
    let hostile = json!({
        "act": "x", "outcome": "done", "v": 9, "seq": 1, "mac": "00", "seal": "", "sig": "", "gap": {},
        "checkpoint": {"why": "stop"}, "service": "node", "time": "2000-01-01T00:00:00Z", "uid": 0,
    });
    let event = of(&hostile).unwrap();
    let expected = json!({"act": "x", "outcome": "done", "service": "broker", "uid": 0});
    assert_eq!(line(&event), expected);
    assert!(event.time.elapsed().unwrap() < Duration::from_secs(60));
    // The daemon's own acts cannot have the mark.
    let mut fields = Map::new();
    fields.insert("service".into(), "broker".into());
    assert!(
        line(&Event::act(&client(), "x", fields))
            .get("service")
            .is_none()
    );
}

#[test]
fn the_time_of_a_service_counts_within_a_minute() {
    let at = |seconds: u64, ahead: bool| {
        let apart = Duration::from_secs(seconds);
        let now = SystemTime::now();
        let mut event = Event::key_use(&client(), "sign", "app");
        event.time = if ahead { now + apart } else { now - apart };
        let kept = received(&event).time;
        let [one, other] = [
            event.time.duration_since(kept),
            kept.duration_since(event.time),
        ];
        one.or(other).unwrap() < Duration::from_micros(1)
    };
    assert!(at(50, false) && at(50, true));
    assert!(!at(70, false) && !at(70, true));
}

#[test]
fn what_is_no_event_is_refused() {
    let depth = |levels: usize| {
        let nested = (0..levels).fold(json!(1), |inner, _| json!([inner]));
        json!({"act": "x", "outcome": "done", "more": nested})
    };
    let many = |count: usize| json!({"act": "x", "outcome": "done", "more": vec![0; count]});
    assert!(of(&depth(5)).is_ok() && of(&many(500)).is_ok());
    for bad in [
        json!([]),
        json!({"outcome": "done"}),
        json!({"act": "x"}),
        json!({"act": "x", "call": "y", "key": "", "outcome": "done"}),
        json!({"call": "y", "outcome": "done"}),
        json!({"act": "x", "outcome": 1}),
        json!({"act": "x", "outcome": "done", "uid": "root"}),
        json!({"act": "x", "outcome": "done", "uid": -1}),
        json!({"call": "y", "key": "", "outcome": "done", "micros": "1"}),
        json!({"act": "x", "outcome": "done", "n".repeat(100): 1}),
        depth(20),
        many(2_000),
    ] {
        assert!(of(&bad).is_err(), "{bad}");
    }
    for bad in [
        &b""[..],
        b"{",
        b"\xff",
        &[b'['; 10_000],
        &[b' '; Event::MAX_BYTES + 1],
    ] {
        assert!(Event::of_service("broker", bad).is_err());
    }
    let long = json!({"act": "x", "outcome": "o".repeat(10_000)});
    let outcome = line(&of(&long).unwrap())["outcome"].as_str().unwrap().len();
    assert!((1_000..5_000).contains(&outcome), "{outcome}");
}

#[test]
fn a_long_event_is_cut_and_keeps_its_line() {
    let long = |length: usize| "\u{1}\"ü".repeat(length);
    let mut fields = Map::new();
    fields.insert("key".into(), "app".into());
    fields.insert("list".into(), vec!["x"; 10_000].into());
    fields.insert("text".into(), long(10_000).into());
    fields.insert("short".into(), "stays".into());
    let act = Event::act(&client(), "broker-key-config", fields).outcome(long(3_000));
    let bytes = act.to_bytes();
    assert!(bytes.len() <= Event::MAX_BYTES, "{}", bytes.len());
    let cut = line(&received(&act));
    for (name, value) in [
        ("act", "broker-key-config"),
        ("key", "app"),
        ("actor", "token:app"),
        ("peer", "192.0.2.7:50412"),
        ("short", "stays"),
    ] {
        assert_eq!(cut[name], value, "{cut}");
    }
    assert!(cut["outcome"].as_str().unwrap().starts_with(&long(50)));
    assert!(cut["text"].as_str().unwrap().ends_with('…'), "{cut}");
    assert_eq!(cut["cut"], true);

    let named = Actor::client(long(5_000), long(5_000));
    let key_use = Event::key_use(&Arc::new(named), "sign", long(5_000)).label(Some(long(5_000)));
    assert!(key_use.to_bytes().len() <= Event::MAX_BYTES);
    let cut = line(&received(&key_use));
    assert_eq!(cut["call"], "sign");
    assert_eq!(cut["outcome"], "done");
    for name in ["key", "actor"] {
        assert!(cut[name].as_str().unwrap().starts_with(&long(50)), "{cut}");
    }
    let crowd = (0..5_000).map(|n| (n.to_string(), Value::from(n)));
    let crowd = Event::act(&client(), "x", crowd.collect());
    assert!(crowd.to_bytes().len() <= Event::MAX_BYTES);
}
