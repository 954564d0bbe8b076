//! What of a head is for the next one alone, and what the backend is told of the client.

use std::net::SocketAddr;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Request, Uri, Version};

/// For one connection (RFC 9110, section 7.6.1, and those that were used so before it).
static HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What a client may not say of itself: nobody who speaks HTTP stands before the gateway.
const OURS: [&str; 6] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
];

/// The host that a request asks for, with the port if it has one.
pub fn host<B>(request: &Request<B>) -> Option<&str> {
    let authority = request.uri().authority().map(Authority::as_str);
    authority.or_else(|| request.headers().get(header::HOST)?.to_str().ok())
}

/// A host without its port.
pub fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The protocol that a request of HTTP/1.1 wants to change to.
pub fn upgrade<B>(request: &Request<B>) -> Option<HeaderValue> {
    let wants = tokens(request.headers()).any(|token| token.eq_ignore_ascii_case("upgrade"));
    let to = request.headers().get(header::UPGRADE);
    to.filter(|_| wants && request.version() == Version::HTTP_11)
        .cloned()
}

/// Whether a client takes fields after the body (RFC 9110, section 10.1.4).
pub fn takes_trailers(headers: &HeaderMap) -> bool {
    let mut said = listed(headers, header::TE);
    said.any(|coding| coding.eq_ignore_ascii_case("trailers"))
}

/// Whether a head is short enough for a connection that others use as well: nginx ends that by what is too long for it.
pub fn fit_beside_others(headers: &HeaderMap, uri: &Uri) -> bool {
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let fields = headers.iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len());
    let (longest, all) = fields.fold((path, path), |(longest, all), each| {
        (longest.max(each), all + each)
    });
    longest <= 8000 && all <= 16 << 10
}

/// Takes away what is for this connection alone.
pub fn strip(headers: &mut HeaderMap) {
    let named: Vec<_> = tokens(headers)
        .filter_map(|token| token.parse::<HeaderName>().ok())
        .collect();
    for name in named.iter().chain(&HOP) {
        headers.remove(name);
    }
}

/// Tells the backend who asks, and for what.
pub fn introduce(headers: &mut HeaderMap, from: SocketAddr, host: Option<&str>) {
    for name in OURS {
        headers.remove(name);
    }
    let ip = from.ip().to_canonical().to_string();
    let said = [
        ("x-forwarded-for", Some(&*ip)),
        ("x-forwarded-host", host),
        ("x-forwarded-proto", Some("https")),
    ];
    for (name, value) in said {
        if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
            headers.insert(name, value);
        }
    }
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
    fn what_is_for_one_connection_goes_no_further() {
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
    fn a_client_does_not_say_who_it_is() {
        let mut request = request(&[("x-forwarded-for", "1.1.1.1"), ("forwarded", "for=1.1.1.1")]);
        introduce(
            request.headers_mut(),
            "[::ffff:9.8.7.6]:5".parse().unwrap(),
            Some("here"),
        );
        assert_eq!(request.headers()["x-forwarded-for"], "9.8.7.6");
        assert_eq!(request.headers()["x-forwarded-host"], "here");
        assert!(!request.headers().contains_key("forwarded"));
    }

    #[test]
    fn a_protocol_changes_only_where_both_headers_say_so() {
        let both = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ];
        assert_eq!(upgrade(&request(&both)).unwrap(), "websocket");
        assert_eq!(upgrade(&request(&both[1..])), None);
    }

    #[test]
    fn trailers_are_for_who_takes_them() {
        let takes = |te| takes_trailers(request(&[("te", te)]).headers());
        assert!(takes("gzip, Trailers"));
        assert!(!takes("gzip"));
        assert!(!takes_trailers(request(&[]).headers()));
    }

    #[test]
    fn a_port_is_no_part_of_a_name() {
        let hosts = [
            ("a.example:443", "a.example"),
            ("a.example", "a.example"),
            ("[::1]:443", "[::1]"),
            ("[::1]", "[::1]"),
        ];
        for (host, name) in hosts {
            assert_eq!(without_port(host), name);
        }
    }
}
