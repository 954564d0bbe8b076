//! Times in JSON and for people (ISO 8601, RFC 3339).

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The last second of the year 9999, where the format ends.
const LAST: u64 = 253_402_300_799;

/// A time in seconds after 1970. JSON and people get it in UTC, as `2026-11-29T14:05:00Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The current time.
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// Seconds after 1970.
    pub fn seconds(self) -> u64 {
        self.0
    }
}

impl From<u64> for Timestamp {
    /// Times after the year 9999 become its last second.
    fn from(seconds: u64) -> Self {
        Self(seconds.min(LAST))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(at: SystemTime) -> Self {
        let since = at.duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs()).into()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = UNIX_EPOCH + Duration::from_secs(self.0);
        humantime::format_rfc3339_seconds(at).fmt(f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let at = humantime::parse_rfc3339(&text);
        at.map(Self::from)
            .map_err(|why| D::Error::custom(format!("{text:?} is not a time: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_time_in_utc() {
        let at = Timestamp::from(1_796_047_500);
        let json = serde_json::to_string(&at).unwrap();
        assert_eq!(json, "\"2026-11-30T14:05:00Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), at);
        assert!(serde_json::from_str::<Timestamp>("\"yesterday\"").is_err());
    }

    #[test]
    fn no_time_is_too_late_to_be_shown() {
        let last = Timestamp::from(u64::MAX);
        assert_eq!(last.to_string(), "9999-12-31T23:59:59Z");
    }
}
