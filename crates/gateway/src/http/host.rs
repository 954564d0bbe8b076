//! The host that a request names, in one canonical form.

use std::fmt;
use std::net::Ipv6Addr;

use hyper::header::{HOST, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Request, Version};

/// A host in lower case and without a trailing dot. IPv6 addresses keep their brackets.
#[derive(Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
    /// `None`: the default port of the protocol.
    port: Option<u16>,
}

/// The default port of HTTP.
pub const HTTP: u16 = 80;
/// The default port of HTTPS.
pub const HTTPS: u16 = 443;

/// RFC 1035, section 2.3.4.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

impl Host {
    /// The host that a request names. An error says what is wrong. `usual` is the port of a host without one.
    ///
    /// A request of HTTP/1 needs a Host field (RFC 9112, section 3.2). One of HTTP/2 needs it or `:authority`. If a
    /// request has both, they have to name the same host.
    pub fn of<B>(request: &Request<B>, usual: u16) -> Result<Self, &'static str> {
        let mut fields = request.headers().get_all(HOST).iter();
        let field = fields.next().map(HeaderValue::as_bytes);
        if fields.next().is_some() {
            return Err("the request has more than one Host field");
        }
        if field.is_none() && request.version() < Version::HTTP_2 {
            return Err("the request has no Host field");
        }
        let authority = request.uri().authority().map(Authority::as_str);
        let parse = |text| Self::parse(text, usual).ok_or("the request's host is no HOST[:PORT]");
        let field = field.map(parse).transpose()?;
        let authority = authority.map(str::as_bytes).map(parse).transpose()?;
        match (authority, field) {
            (Some(authority), Some(field)) if authority != field => {
                Err("the request names two hosts")
            }
            (Some(host), _) | (None, Some(host)) => Ok(host),
            (None, None) => Err("the request names no host"),
        }
    }

    /// Parses `HOST[:PORT]`, and nothing else that RFC 3986 allows in an authority.
    fn parse(text: &[u8], usual: u16) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let end = if text.starts_with('[') {
            text.find(']')? + 1
        } else {
            text.find(':').unwrap_or(text.len())
        };
        let (name, port) = text.split_at(end);
        let port = match port.strip_prefix(':') {
            Some(port) => Some(number(port)?),
            None if port.is_empty() => None,
            None => return None,
        };
        Some(Self {
            name: canonical(name)?,
            port: port.filter(|port| *port != usual),
        })
    }

    /// The host without its port.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port, unless it is the default one.
    pub fn port(&self) -> Option<u16> {
        self.port
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

fn number(port: &str) -> Option<u16> {
    // `parse` alone would accept `+80`.
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| port.parse().ok())?
}

fn canonical(name: &str) -> Option<String> {
    if let Some(address) = name.strip_prefix('[') {
        let address: Ipv6Addr = address.strip_suffix(']')?.parse().ok()?;
        return Some(format!("[{address}]"));
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let good = |label: &str| {
        !label.is_empty() && label.len() <= LONGEST_LABEL && label.bytes().all(letter)
    };
    let fits = name.len() <= LONGEST_NAME && name.split('.').all(good);
    fits.then(|| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(version: Version, uri: &str, fields: &[&[u8]]) -> Result<String, &'static str> {
        let mut request = Request::new(());
        *request.version_mut() = version;
        *request.uri_mut() = uri.parse().unwrap();
        for field in fields {
            let value = HeaderValue::from_bytes(field).unwrap();
            request.headers_mut().append(HOST, value);
        }
        Host::of(&request, HTTPS).map(|host| host.to_string())
    }

    #[test]
    fn a_host_has_one_canonical_form() {
        for (host, canonical) in [
            ("a.example", "a.example"),
            ("A.Example.", "a.example"),
            ("a.example:443", "a.example"),
            ("a.example.:8443", "a.example:8443"),
            ("a_b.example:00080", "a_b.example:80"),
            ("10.0.0.1:65535", "10.0.0.1:65535"),
            ("[2001:DB8::0:1]:443", "[2001:db8::1]"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(
                of(Version::HTTP_11, "/", &[host.as_bytes()]).as_deref(),
                Ok(canonical)
            );
        }
    }

    #[test]
    fn invalid_hosts_are_refused() {
        let long = "a".repeat(64);
        let longer = ["a.".repeat(127).as_str(), "a"].concat();
        for host in [
            "",
            ".",
            "a..",
            "a..b",
            ":443",
            "a:",
            "a:443:",
            "a:abc",
            "a:+80",
            "a:-1",
            "a:65536",
            "a b",
            "a@b",
            "user:pass@a",
            "a/b",
            "a,b",
            "a?b",
            "a#b",
            "a\\b",
            "a%2eb",
            "*",
            "::1",
            "[::1",
            "[a]",
            "[::1]a",
            "[::1]:",
            "[::1%25lo]",
            "[]",
            &long,
            &longer,
        ] {
            assert!(
                of(Version::HTTP_11, "/", &[host.as_bytes()]).is_err(),
                "{host}"
            );
        }
        for host in [&b"b.example:\xff"[..], b"\xffa", "ä.example".as_bytes()] {
            assert!(of(Version::HTTP_11, "/", &[host]).is_err(), "{host:?}");
        }
    }

    #[test]
    fn a_request_names_one_host() {
        let (http1, http2) = (Version::HTTP_11, Version::HTTP_2);
        let same = Ok("a.example");
        let good: [(_, _, &[&[u8]]); 4] = [
            (http1, "https://a.example/", &[b"A.example:443"]),
            (http2, "https://a.example/", &[]),
            (http2, "https://a.example/", &[b"a.example."]),
            (http2, "/", &[b"a.example"]),
        ];
        for (version, uri, fields) in good {
            assert_eq!(of(version, uri, fields).as_deref(), same, "{uri}");
        }
        let bad: [(_, _, &[&[u8]]); 7] = [
            (http1, "/", &[]),
            (Version::HTTP_10, "/", &[]),
            (http1, "https://a.example/", &[]),
            (http1, "/", &[b"a.example", b"a.example"]),
            (http1, "https://a.example/", &[b"b.example"]),
            (http2, "/", &[]),
            (http2, "https://a.example/", &[b"a.example:8443"]),
        ];
        for (version, uri, fields) in bad {
            assert!(of(version, uri, fields).is_err(), "{version:?} {uri}");
        }
    }
}
