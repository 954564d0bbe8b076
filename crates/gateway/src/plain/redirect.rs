//! Where the same page is over TLS, if it is ours.

use std::net::Ipv6Addr;

use hyper::header::{HeaderValue, LOCATION};
use hyper::{Method, Request, StatusCode};

use crate::house::House;
use crate::http::{Answer, host, text, without_port};
use crate::metrics::Plain;

/// Ports that are not named in an address.
const HTTP: &str = "80";
const HTTPS: u16 = 443;

/// The way to https, on the host that was asked for, which has to be a site's: nobody is sent elsewhere.
pub fn answer<B>(house: &House, request: &Request<B>) -> (Plain, Answer) {
    match location(house, request) {
        Ok(location) => {
            // Not 301, after which clients make a GET of every other method.
            let mut answer = text(StatusCode::PERMANENT_REDIRECT, "this page is at https://");
            answer.headers_mut().insert(LOCATION, location);
            (Plain::Redirect, answer)
        }
        Err((status, why)) => (Plain::Refused, text(status, why)),
    }
}

fn location<B>(
    house: &House,
    request: &Request<B>,
) -> Result<HeaderValue, (StatusCode, &'static str)> {
    if request.method() == Method::CONNECT {
        let why = "this is no proxy for other servers";
        return Err((StatusCode::METHOD_NOT_ALLOWED, why));
    }
    let bad = (StatusCode::BAD_REQUEST, "no host of this name can be");
    let host = host(request).ok_or(bad)?;
    let name = without_port(host);
    if !is_host(name) {
        return Err(bad);
    }
    // RFC 9110, section 15.5.20.
    let unknown = (
        StatusCode::MISDIRECTED_REQUEST,
        "no site of this name is here",
    );
    let served = house.sites.load().find(Some(name)).ok_or(unknown)?;
    if !served.is_certified() {
        let why = "this site has no certificate yet";
        return Err((StatusCode::SERVICE_UNAVAILABLE, why));
    }
    let port = port(&host[name.len()..], house.port);
    let path = request.uri().path_and_query();
    let path = path.map_or("", |path| path.as_str());
    // `*` is the path of OPTIONS for the whole server.
    let path = if path.starts_with('/') { path } else { "/" };
    HeaderValue::from_str(&format!("https://{name}{port}{path}")).map_err(|_| bad)
}

/// Who has come to port 80 knows the gateway by its usual ports, wherever it listens behind a balancer; who
/// names another port has come to its own.
fn port(asked: &str, own: u16) -> String {
    match asked.strip_prefix(':') {
        None | Some("" | HTTP) => String::new(),
        Some(_) if own == HTTPS => String::new(),
        Some(_) => format!(":{own}"),
    }
}

/// Nothing that would be more than a host in an address.
fn is_host(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let six = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match six {
        Some(six) => six.parse::<Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.bytes().all(fits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_host_and_no_more() {
        for host in ["a.example", "xn--a_b-1.example.", "10.0.0.1", "[::1]"] {
            assert!(is_host(host), "{host}");
        }
        for not in [
            "", "a@b", "a/b", "a b", "[a]", "::1", "a:80", "a?b", "a#b", "a\\b",
        ] {
            assert!(!is_host(not), "{not}");
        }
    }

    #[test]
    fn a_port_is_named_where_it_has_to_be() {
        for (asked, own, named) in [
            ("", 8443, ""),
            (":80", 8443, ""),
            (":8080", 8443, ":8443"),
            (":8080", 443, ""),
        ] {
            assert_eq!(port(asked, own), named);
        }
    }
}
