//! Events between a service and the daemon. The service shortens its own; the daemon checks all that comes.

use std::time::{Duration, SystemTime};

use hsmux_token::{Error, Result};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::event::{Event, OWN};

/// The most that the time of a service may differ from the daemon's.
const MAX_SKEW: Duration = Duration::from_secs(60);

/// The longest string that the daemon records, in bytes.
const MAX_STRING: usize = 4 << 10;

/// The longest name of a field, in bytes.
const MAX_NAME: usize = 64;

/// The most levels of values within values.
const MAX_DEPTH: usize = 8;

/// The most values of an event.
const MAX_VALUES: usize = 1_000;

/// Fields that a long event keeps, each with at most `KEPT` bytes of JSON.
const LINE: &[&str] = &["time", "act", "call", "key", "actor", "outcome"];
const KEPT: usize = 1 << 10;

/// The end of a string that was cut.
const ELLIPSIS: char = '…';

/// Fields that are strings in every event, and in the use of a key.
const TEXTS: &[&str] = &["program", "actor", "certificate", "peer", "act", "call"];
const TEXTS_OF_USE: &[&str] = &["key", "label", "class", "made", "mechanism"];

/// An event with its time.
#[derive(Serialize)]
struct Timed<'a> {
    time: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

/// An event as the daemon has understood it.
pub struct ParsedEvent {
    pub time: SystemTime,
    pub request: Option<String>,
    pub outcome: String,
    /// All other fields.
    pub fields: Map<String, Value>,
}

/// The event as JSON, cut to [`Event::MAX_BYTES`].
pub fn to_bytes(event: &Event, time: SystemTime) -> Vec<u8> {
    let time = humantime::format_rfc3339_micros(time).to_string();
    let event = Timed { time: &time, event };
    // Writing to memory cannot fail, and maps have strings as keys; the daemon refuses an empty event.
    let bytes = serde_json::to_vec(&event).unwrap_or_default();
    if bytes.len() <= Event::MAX_BYTES {
        return bytes;
    }
    let mut fields: Map<_, _> = serde_json::from_slice(&bytes).unwrap_or_default();
    cut(&mut fields);
    serde_json::to_vec(&fields).unwrap_or_default()
}

/// Shortens the longest fields, then drops the longest, until all of them have room.
fn cut(fields: &mut Map<String, Value>) {
    fields.insert("cut".into(), true.into());
    for name in LINE {
        if let Some(Value::String(text)) = fields.get_mut(*name) {
            shorten(text, KEPT);
        }
    }
    loop {
        let mut excess = json_length(fields).saturating_sub(Event::MAX_BYTES);
        let others = fields
            .iter()
            .filter(|(name, value)| !(LINE.contains(&name.as_str()) && value.is_string()));
        let mut others: Vec<_> = others
            .map(|(name, value)| (json_length(value), name.clone()))
            .collect();
        others.sort_unstable_by(|one, other| other.cmp(one));
        if excess == 0 || others.is_empty() {
            return;
        }
        for (length, name) in others {
            if excess == 0 {
                break;
            }
            let saved = match fields.get_mut(&name) {
                Some(Value::String(text)) if length > KEPT => {
                    shorten(text, KEPT.max(length.saturating_sub(excess)));
                    length - json_length(text)
                }
                _ => {
                    fields.remove(&name);
                    length + json_length(&name)
                }
            };
            excess = excess.saturating_sub(saved);
        }
    }
}

fn json_length(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |bytes| bytes.len())
}

/// Cuts a text to so many bytes of JSON.
fn shorten(text: &mut String, most: usize) {
    if json_length(text) <= most {
        return;
    }
    let mut length = "\"\"".len() + ELLIPSIS.len_utf8();
    let end = text.char_indices().find_map(|(at, char)| {
        length += match char {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            '\0'..' ' => 6,
            _ => char.len_utf8(),
        };
        (length > most).then_some(at)
    });
    text.truncate(end.unwrap_or(text.len()));
    text.push(ELLIPSIS);
}

/// Reads an event of a service, which may be hostile.
pub fn parse(service: &str, bytes: &[u8]) -> Result<ParsedEvent> {
    let refused = |why: &str| Error::protocol(format!("an event of the {service}: {why}"));
    if bytes.len() > Event::MAX_BYTES {
        return Err(refused("it is too long"));
    }
    let fields = serde_json::from_slice(bytes);
    let mut fields: Map<_, _> = fields.map_err(|e| refused(&e.to_string()))?;
    let time = fields.get("time").and_then(Value::as_str).and_then(near);
    fields.retain(|name, _| !OWN.contains(&name.as_str()));
    limit(&mut fields, MAX_DEPTH, &mut { MAX_VALUES }).map_err(refused)?;
    check_types(&fields).map_err(|name| refused(&format!("{name} has another type")))?;
    if fields.contains_key("act") == fields.contains_key("call") {
        return Err(refused("it has to have either act or call"));
    }
    let Some(Value::String(outcome)) = fields.remove("outcome") else {
        return Err(refused("it has no outcome"));
    };
    let request = match fields.remove("request") {
        Some(Value::String(id)) => Some(id),
        None => None,
        Some(_) => return Err(refused("request has another type")),
    };
    Ok(ParsedEvent {
        time: time.unwrap_or_else(SystemTime::now),
        request,
        outcome,
        fields,
    })
}

/// The time, if it is near to now.
fn near(text: &str) -> Option<SystemTime> {
    let time = humantime::parse_rfc3339(text).ok()?;
    let now = SystemTime::now();
    let apart = now
        .duration_since(time)
        .or_else(|_| time.duration_since(now));
    (apart.ok()? <= MAX_SKEW).then_some(time)
}

/// Refuses too many values and too many levels; cuts strings.
fn limit(
    fields: &mut Map<String, Value>,
    levels: usize,
    left: &mut usize,
) -> std::result::Result<(), &'static str> {
    if fields.keys().any(|name| name.len() > MAX_NAME) {
        return Err("the name of a field is too long");
    }
    fields
        .values_mut()
        .try_for_each(|value| limit_value(value, levels, left))
}

fn limit_value(
    value: &mut Value,
    levels: usize,
    left: &mut usize,
) -> std::result::Result<(), &'static str> {
    let inner = levels.checked_sub(1).ok_or("it has too many levels");
    *left = left.checked_sub(1).ok_or("it has too many values")?;
    match value {
        Value::String(text) => shorten_bytes(text),
        Value::Array(values) => {
            let inner = inner?;
            for value in values {
                limit_value(value, inner, left)?;
            }
        }
        Value::Object(fields) => limit(fields, inner?, left)?,
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

fn shorten_bytes(text: &mut String) {
    if text.len() > MAX_STRING {
        let end = (0..=MAX_STRING).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push(ELLIPSIS);
    }
}

/// An error is the name of the first field that the form of lines gives another type.
fn check_types(fields: &Map<String, Value>) -> std::result::Result<(), &'static str> {
    let is_use = fields.contains_key("call");
    let texts = TEXTS.iter().chain(TEXTS_OF_USE.iter().filter(|_| is_use));
    let is_other = |name: &str, fits: &dyn Fn(&Value) -> bool| {
        let value = fields.get(name);
        value.is_some_and(|value| !fits(value))
    };
    for name in texts {
        if is_other(name, &Value::is_string) {
            return Err(name);
        }
    }
    if is_use && !fields.contains_key("key") {
        return Err("key");
    }
    let user = |id: &Value| id.as_u64().is_some_and(|id| u32::try_from(id).is_ok());
    let process = |id: &Value| id.as_i64().is_some_and(|id| i32::try_from(id).is_ok());
    if is_other("uid", &user) {
        return Err("uid");
    }
    if is_other("pid", &process) {
        return Err("pid");
    }
    for name in ["version", "micros"] {
        if is_use && is_other(name, &Value::is_u64) {
            return Err(name);
        }
    }
    Ok(())
}
