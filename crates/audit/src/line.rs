//! The form of a line, version 1.
//!
//! A line is one JSON object and a newline. Its last fields are always the same, in this order and without white
//! space. Each of them vouches for the bytes before it:
//!
//! ```text
//! {"v":1,"seq":7,"time":"...", ...,"mac":"64 hex"}
//! {"v":1,"seq":8,"time":"...","checkpoint":{...},"mac":"64 hex","seal":"64 hex","sig":"128 hex"}
//! ```

use std::time::SystemTime;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// The version of the form.
pub const VERSION: u32 = 1;

/// HMAC-SHA-256.
pub type Mac = [u8; 32];

/// The common beginning of a line, and its content.
#[derive(Serialize)]
struct AuditLine<'a, T: Serialize> {
    v: u32,
    seq: u64,
    time: &'a str,
    #[serde(flatten)]
    what: T,
}

/// The content of a checkpoint: the `checkpoint` of its line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Why there is one now.
    pub why: CheckpointReason,
    /// The number of checkpoints before it.
    pub epoch: u64,
    /// The MAC of the line before it, which may be in another file.
    #[serde(with = "hex_field")]
    pub prev: Mac,
    /// The key of the MACs since the last checkpoint, including this line's.
    #[serde(with = "hex_field")]
    pub key: Mac,
    /// The findings of a start.
    #[serde(flatten)]
    pub found: StartFindings,
}

/// Why there is a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointReason {
    /// The trail was opened.
    Start,
    /// There were enough lines.
    Lines,
    /// Lines have waited long enough.
    Time,
    /// The last line of a file, before a new file.
    Close,
    /// The first line of a new file.
    Open,
    /// An orderly end.
    Stop,
}

/// The findings of a start about the run before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFindings {
    /// The run before did not end in order: its last lines may be lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unclean: bool,
    /// The file ended within a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torn: Option<TornLine>,
    /// The trail was not as it was left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// The rest of a line that was not written to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TornLine {
    /// Its bytes.
    pub bytes: u64,
    /// Their SHA-256.
    #[serde(with = "hex_field")]
    pub sha256: Mac,
}

/// Lost lines, and uses of keys that were refused, since the trail could not be written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Gap {
    /// When it began.
    pub since: String,
    /// Lines that are lost.
    pub lost: u64,
    /// Uses of keys that were refused.
    pub refused: u64,
    /// The error.
    pub why: String,
}

/// The part of a line that verification reads.
#[derive(Debug, Deserialize)]
pub struct ParsedLine {
    pub v: u32,
    pub seq: u64,
    pub time: String,
    pub checkpoint: Option<Checkpoint>,
    pub gap: Option<Gap>,
}

/// A line's parts, from its end.
#[derive(Debug)]
pub struct LineParts<'a> {
    /// The bytes that the MAC is over.
    pub body: &'a [u8],
    /// The chain's MAC.
    pub mac: Mac,
    /// A checkpoint's.
    pub signed: Option<CheckpointParts<'a>>,
}

/// The fields of a checkpoint beyond those of other lines.
#[derive(Debug)]
pub struct CheckpointParts<'a> {
    /// The bytes that the seal is over.
    pub sealed: &'a [u8],
    /// HMAC with the epoch's seal key.
    pub seal: Mac,
    /// The bytes that the signature is over.
    pub before: &'a [u8],
    /// Ed25519.
    pub sig: [u8; 64],
}

/// Appends a line without its end.
pub fn begin(block: &mut Vec<u8>, seq: u64, time: SystemTime, what: &impl Serialize) {
    let time = humantime::format_rfc3339_micros(time).to_string();
    let start = block.len();
    let body = AuditLine {
        v: VERSION,
        seq,
        time: &time,
        what,
    };
    // Writing to memory cannot fail, and maps have strings as keys; an error would appear in the line.
    if let Err(error) = serde_json::to_writer(&mut *block, &body) {
        block.truncate(start);
        let error = serde_json::Value::from(error.to_string());
        let text =
            format!("{{\"v\":{VERSION},\"seq\":{seq},\"time\":\"{time}\",\"error\":{error}}}");
        block.extend_from_slice(text.as_bytes());
    }
    block.pop();
}

/// Appends one of the last fields.
pub fn field(block: &mut Vec<u8>, name: &str, value: &[u8]) {
    block.extend_from_slice(format!(",\"{name}\":\"{}\"", hex::encode(value)).as_bytes());
}

/// Ends the line.
pub fn end(block: &mut Vec<u8>) {
    block.extend_from_slice(b"}\n");
}

/// True if this may be the beginning of a line.
fn is_begun(text: &[u8]) -> bool {
    let begin = b"{\"v\":";
    let count = begin.len().min(text.len());
    count > 0 && text[..count] == begin[..count]
}

/// True if this may be a line that was not written to its end: it is begun, and no JSON.
pub fn is_torn(text: &[u8]) -> bool {
    is_begun(text) && parts(text).is_none() && serde_json::from_slice::<IgnoredAny>(text).is_err()
}

/// Splits a line without its newline; `None` if it has another form.
pub fn parts(line: &[u8]) -> Option<LineParts<'_>> {
    let rest = line.strip_suffix(b"}")?;
    let mut signed = None;
    let mut rest = rest;
    if let Some((before, sig)) = take(rest, "sig") {
        let (sealed, seal) = take(before, "seal")?;
        signed = Some(CheckpointParts {
            sealed,
            seal,
            before,
            sig,
        });
        rest = sealed;
    }
    let (body, mac) = take(rest, "mac")?;
    Some(LineParts { body, mac, signed })
}

/// Takes `,"name":"hex"` from the end. Upper case is refused, so that each byte has one form.
fn take<'a, const N: usize>(text: &'a [u8], name: &str) -> Option<(&'a [u8], [u8; N])> {
    let text = text.strip_suffix(b"\"")?;
    let (rest, digits) = text.split_at_checked(text.len().checked_sub(2 * N)?)?;
    let rest = rest.strip_suffix(format!(",\"{name}\":\"").as_bytes())?;
    Some((rest, unhex(digits)?))
}

fn unhex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    let lower = !digits.iter().any(u8::is_ascii_uppercase);
    lower.then_some(bytes)
}

pub mod hex_field {
    //! A MAC or a key in JSON.

    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    use super::Mac;

    pub fn serialize<S: Serializer>(bytes: &Mac, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex::encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Mac, D::Error> {
        let text = String::deserialize(from)?;
        super::unhex(text.as_bytes()).ok_or_else(|| Error::custom("not 64 hexadecimal digits"))
    }
}
