//! If-Range (RFC 9110, section 13.1.5): a client that has a part of a file wants another part of it, or the whole file
//! if it has changed.

use hyper::HeaderMap;
use hyper::Request;
use hyper::header::{ETAG, IF_RANGE, LAST_MODIFIED, RANGE};

/// The condition of a range. `None`: it never holds.
pub struct Condition(Option<Vec<u8>>);

impl Condition {
    /// The condition of a request for a range, if it has one.
    pub fn of<B>(request: &Request<B>) -> Option<Self> {
        let headers = request.headers();
        if !headers.contains_key(RANGE) {
            return None;
        }
        let mut values = headers.get_all(IF_RANGE).into_iter();
        let value = values.next()?;
        // Several conditions are contradictory, so none holds.
        let only = values.next().is_none();
        Some(Self(only.then(|| value.as_bytes().to_owned())))
    }

    /// Whether the client's part is of the file with this head. The tag or the date has to be identical, and a weak tag
    /// is never enough.
    pub fn holds(&self, answer: &HeaderMap) -> bool {
        let Some(value) = &self.0 else {
            return false;
        };
        let field = if value.starts_with(b"\"") {
            ETAG
        } else {
            LAST_MODIFIED
        };
        answer.get(field).is_some_and(|own| own.as_bytes() == value)
    }
}

/// The same request for the whole file.
pub fn for_all_of_it<B: Default>(request: &Request<B>) -> Request<B> {
    let mut all = Request::new(B::default());
    request.method().clone_into(all.method_mut());
    request.uri().clone_into(all.uri_mut());
    request.headers().clone_into(all.headers_mut());
    all.headers_mut().remove(RANGE);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn holds(conditions: &[&'static str]) -> Option<bool> {
        let mut request = Request::new(());
        let part = HeaderValue::from_static("bytes=0-0");
        request.headers_mut().insert(RANGE, part);
        for condition in conditions {
            let condition = HeaderValue::from_static(condition);
            request.headers_mut().append(IF_RANGE, condition);
        }
        let mut answer = HeaderMap::new();
        answer.insert(ETAG, HeaderValue::from_static("\"tag\""));
        answer.insert(LAST_MODIFIED, HeaderValue::from_static("a date"));
        Condition::of(&request).map(|condition| condition.holds(&answer))
    }

    #[test]
    fn only_one_identical_condition_holds() {
        assert_eq!(holds(&[]), None);
        assert_eq!(Condition::of(&Request::new(())).map(drop), None);
        assert_eq!(holds(&["\"tag\""]), Some(true));
        assert_eq!(holds(&["a date"]), Some(true));
        for other in ["W/\"tag\"", "\"tag", "\"\"", "another date", ""] {
            assert_eq!(holds(&[other]), Some(false), "{other}");
        }
        assert_eq!(holds(&["\"tag\"", "\"tag\""]), Some(false));
    }
}
