//! The mix of operations.

use std::fmt;
use std::str::FromStr;

use super::request_kind::RequestKind;

/// Operations with their shares: `encrypt=1,decrypt=1`, or `encrypt,decrypt`, is half and half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix(Vec<(&'static RequestKind, usize)>);

/// The maximum sum of shares: a caller runs them in sequence.
const MOST: usize = 1000;

impl Mix {
    /// Each operation as often as its share, in the order of requests.
    pub(super) fn request_kinds(&self) -> Vec<&'static RequestKind> {
        let most = self.0.iter().map(|(_, share)| *share).max().unwrap_or(0);
        let turn = |turn| {
            let due = self.0.iter().filter(move |(_, share)| turn < *share);
            due.map(|(kind, _)| *kind)
        };
        (0..most).flat_map(turn).collect()
    }
}

impl Default for Mix {
    fn default() -> Self {
        let request_kinds = ["encrypt", "decrypt"]
            .into_iter()
            .filter_map(RequestKind::find);
        Self(request_kinds.map(|kind| (kind, 1)).collect())
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut mix = Vec::new();
        for part in text.split(',') {
            let (name, share) = part.split_once('=').unwrap_or((part, "1"));
            let kind = RequestKind::find(name.trim())
                .ok_or_else(|| format!("{name:?} is none of {}", RequestKind::names()))?;
            let share = share.trim().parse().ok().filter(|share| *share > 0);
            let share = share
                .ok_or_else(|| format!("{part:?}: a share is a number from 1, as in sign=3"))?;
            mix.push((kind, share));
        }
        if mix.iter().map(|(_, share)| share).sum::<usize>() > MOST {
            return Err(format!("shares add up to {MOST} at most"));
        }
        Ok(Self(mix))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self
            .0
            .iter()
            .map(|(kind, n)| format!("{kind}={n}"))
            .collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(text: &str) -> Vec<String> {
        let mix: Mix = text.parse().unwrap();
        mix.request_kinds()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn shares_are_spread() {
        assert_eq!(order("encrypt,decrypt"), ["encrypt", "decrypt"]);
        assert_eq!(order("sign=3,verify"), ["sign", "verify", "sign", "sign"]);
        assert_eq!(Mix::default().to_string(), "encrypt=1,decrypt=1");
    }

    #[test]
    fn what_is_no_mix_says_why() {
        for (text, why) in [
            ("", "none of encrypt"),
            ("encrypt=0", "from 1"),
            ("encrypt=x", "from 1"),
            ("encrypt=999,decrypt=2", "add up"),
        ] {
            let error = text.parse::<Mix>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
