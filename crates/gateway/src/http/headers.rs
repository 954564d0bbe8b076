//! Fields of heads: those for one connection alone, and those that tell the backend of the client.

use std::net::SocketAddr;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Uri, Version};

/// Fields for one connection (RFC 9110, section 7.6.1, and older custom).
static HOP: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Fields that a client may not set: back ends trust them to come from the gateway or a proxy.
const OURS: [&str; 11] = [
    "cf-connecting-ip",
    "fastly-client-ip",
    "forwarded",
    "true-client-ip",
    "x-arr-clientcert",
    "x-client-dn",
    "x-client-ip",
    "x-client-verify",
    "x-cluster-client-ip",
    "x-real-ip",
    "x-rewrite-url",
];

/// Prefixes of further such fields, by which proxies describe the connection and the client's certificate.
const OURS_BEGIN: [&str; 9] = [
    "client-cert",
    "ssl-client-",
    "x-amzn-mtls-",
    "x-client-cert",
    "x-forwarded",
    "x-mtls-",
    "x-original-",
    "x-ssl-",
    "x-tls-client",
];

/// The protocol that a request of HTTP/1.1 wants to change to, if it is `allowed`. A list of several is ignored.
pub fn upgrade<B>(request: &Request<B>, allowed: &[String]) -> Option<HeaderValue> {
    let wants = tokens(request.headers()).any(|token| token.eq_ignore_ascii_case("upgrade"));
    if !wants || request.version() != Version::HTTP_11 {
        return None;
    }
    let to = listed(request.headers(), header::UPGRADE);
    let mut to = to.filter(|to| !to.is_empty());
    let (Some(to), None) = (to.next(), to.next()) else {
        return None;
    };
    let to = allowed.iter().find(|it| it.eq_ignore_ascii_case(to))?;
    HeaderValue::from_str(to).ok()
}

/// Tells a back end that trailers are accepted (RFC 9110, section 10.1.4). gRPC needs this.
pub fn ask_for_trailers(headers: &mut HeaderMap, http2: bool) {
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    if !http2 {
        headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
    }
}

/// Whether a client accepts trailers (RFC 9110, section 10.1.4).
pub fn takes_trailers(headers: &HeaderMap) -> bool {
    let mut said = listed(headers, header::TE);
    said.any(|coding| coding.eq_ignore_ascii_case("trailers"))
}

/// Whether a body has a transfer coding besides `chunked`. It must not be passed on: the field is removed, so that the
/// receiver would take the coding for content (RFC 9112, section 6.1).
pub fn has_other_coding(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(header::TRANSFER_ENCODING).into_iter();
    let Some(line) = lines.next() else {
        return false;
    };
    lines.next().is_some() || !line.as_bytes().eq_ignore_ascii_case(b"chunked")
}

/// Approximate size of a request's head in bytes.
pub fn size<B>(request: &Request<B>) -> usize {
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len());
    fields.sum::<usize>() + request.uri().path().len()
}

/// Whether a head is short enough for a shared connection of HTTP/2: nginx closes it after one that is too long.
pub fn fit_beside_others(headers: &HeaderMap, uri: &Uri) -> bool {
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let fields = headers.iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len());
    let (longest, all) = fields.fold((path, path), |(longest, all), each| {
        (longest.max(each), all + each)
    });
    longest <= 8000 && all <= 16 << 10
}

/// Removes the fields for this connection alone.
pub fn strip(headers: &mut HeaderMap) {
    let named: Vec<_> = tokens(headers)
        .filter_map(|token| token.parse::<HeaderName>().ok())
        .collect();
    for name in named.iter().chain(&HOP) {
        headers.remove(name);
    }
}

/// Tells the backend the client's address, the host and the scheme.
pub fn introduce(headers: &mut HeaderMap, from: SocketAddr, host: HeaderValue) {
    remove_ours(headers);
    let ip = from.ip().to_canonical().to_string();
    if let Ok(ip) = HeaderValue::from_str(&ip) {
        headers.insert("x-forwarded-for", ip);
    }
    headers.insert("x-forwarded-host", host);
    headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
}

/// Removes fields that a client may not set, from a head or from trailers.
pub fn remove_ours(headers: &mut HeaderMap) {
    let ours = headers.keys().filter(|name| is_ours(name.as_str()));
    for name in ours.cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
}

/// Whether some server would read a field's name as one of [`OURS`]. Servers that pass fields on as variables write `_`
/// for each byte that is neither letter nor digit.
fn is_ours(name: &str) -> bool {
    let letter = |byte: u8| {
        if byte.is_ascii_alphanumeric() {
            byte
        } else {
            b'-'
        }
    };
    let begins = |ours: &&str| {
        name.len() >= ours.len() && ours.bytes().eq(name.bytes().take(ours.len()).map(letter))
    };
    let is = |ours: &&str| name.len() == ours.len() && begins(ours);
    name.contains('_') || OURS.iter().any(is) || OURS_BEGIN.iter().any(begins)
}

fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    listed(headers, header::CONNECTION)
}

fn listed(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',').map(str::trim))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(lines: &[(&'static str, &'static str)]) -> Request<()> {
        let mut request = Request::new(());
        for (name, value) in lines {
            request
                .headers_mut()
                .append(*name, HeaderValue::from_static(value));
        }
        request
    }

    #[test]
    fn fields_for_one_connection_are_removed() {
        let lines = [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("accept", "*/*"),
        ];
        let mut request = request(&lines);
        strip(request.headers_mut());
        let left: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["accept"]);
    }

    #[test]
    fn a_client_cannot_set_its_own_address() {
        let mut request = request(&[("x-forwarded-for", "1.1.1.1"), ("forwarded", "for=1.1.1.1")]);
        introduce(
            request.headers_mut(),
            "[::ffff:9.8.7.6]:5".parse().unwrap(),
            HeaderValue::from_static("here"),
        );
        assert_eq!(request.headers()["x-forwarded-for"], "9.8.7.6");
        assert_eq!(request.headers()["x-forwarded-host"], "here");
        assert!(!request.headers().contains_key("forwarded"));
    }

    #[test]
    fn an_upgrade_needs_both_fields() {
        let both = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ];
        let allowed = ["websocket".to_owned()];
        assert_eq!(upgrade(&request(&both), &allowed).unwrap(), "websocket");
        assert_eq!(upgrade(&request(&both[1..]), &allowed), None);
        assert_eq!(upgrade(&request(&both), &[]), None);
        let of = |protocol| request(&[("connection", "upgrade"), ("upgrade", protocol)]);
        assert_eq!(upgrade(&of("WebSocket"), &allowed).unwrap(), "websocket");
        for other in ["h2c", "h2c, websocket", "websocket, h2c", "websocket2", ""] {
            assert_eq!(upgrade(&of(other), &allowed), None, "{other}");
        }
    }

    #[test]
    fn any_coding_but_chunked_is_another() {
        let other = |values: &[&'static str]| {
            let lines: Vec<_> = values
                .iter()
                .map(|value| ("transfer-encoding", *value))
                .collect();
            has_other_coding(request(&lines).headers())
        };
        assert!(!other(&[]) && !other(&["chunked"]) && !other(&["Chunked"]));
        for values in [
            &["gzip, chunked"][..],
            &["chunked, chunked"],
            &["gzip", "chunked"],
            &["identity"],
            &["chunked;q=1"],
            &[""],
        ] {
            assert!(other(values), "{values:?}");
        }
    }

    #[test]
    fn trailers_are_accepted_if_te_says_so() {
        let takes = |te| takes_trailers(request(&[("te", te)]).headers());
        assert!(takes("gzip, Trailers"));
        assert!(!takes("gzip"));
        assert!(!takes_trailers(request(&[]).headers()));
    }

    #[test]
    fn fields_of_the_gateway_are_recognised_in_every_spelling() {
        for name in [
            "forwarded",
            "x-forwarded",
            "x.forwarded.for",
            "x-forwarded-anything",
            "x!real!ip",
            "client-cert-chain",
            "x-original-url",
            "x-tls-client-subject",
            "a_b",
        ] {
            assert!(is_ours(name), "{name}");
        }
        for name in ["forward", "x-real-ips", "client", "cookie", "x-ssl"] {
            assert!(!is_ours(name), "{name}");
        }
    }
}
