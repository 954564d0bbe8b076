//! Answers: few members, whose names are fixed.

use axum::http::StatusCode;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// The members of an answer, in their order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Data(Vec<(&'static str, Value)>);

/// The answer of a success.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// 204.
    Nothing,
    /// The dialect's envelope around this, with a status.
    Data(StatusCode, Data),
    /// The same around the answers to the items of a batch.
    Batch(StatusCode, Vec<Data>),
}

impl Reply {
    /// 200.
    pub fn ok(data: impl Into<Data>) -> Self {
        Self::Data(StatusCode::OK, data.into())
    }
}

impl Data {
    /// Adds a new member.
    pub fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push((name, value.into()));
    }

    /// The approximate size in memory, in bytes: an item's answer has texts, numbers and flags.
    pub fn size(&self) -> usize {
        let text = |value: &Value| value.as_str().map_or(0, str::len);
        let members = self.0.iter();
        members
            .map(|(_, value)| size_of::<(&str, Value)>() + text(value))
            .sum()
    }
}

impl<const N: usize> From<[(&'static str, Value); N]> for Data {
    fn from(members: [(&'static str, Value); N]) -> Self {
        Self(members.into())
    }
}

impl From<Data> for Map<String, Value> {
    fn from(data: Data) -> Self {
        let members = data.0.into_iter();
        members
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}
