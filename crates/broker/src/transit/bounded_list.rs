//! A list that is read up to a limit: each item takes more memory than its text.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// At most so many.
pub struct BoundedList<T, const MOST: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for BoundedList<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Self(Vec::new()))
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for BoundedList<T, MOST> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Self, A::Error> {
        while let Some(item) = items.next_element()? {
            if self.0.len() == MOST {
                let message = format!("at most {MOST} items: send them in several requests");
                return Err(A::Error::custom(message));
            }
            self.0.push(item);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_last_that_may_be_is_not_read() {
        let read = |json: &str| serde_json::from_str::<BoundedList<u8, 2>>(json).map(|list| list.0);
        assert!(read("[]").unwrap().is_empty());
        assert_eq!(read("[1, 2]").unwrap(), [1, 2]);
        let error = read("[1, 2, 3, what is no JSON").err().unwrap();
        assert!(error.to_string().contains("at most 2 items"), "{error}");
        assert!(read("{}").is_err());
    }
}
