//! Where the same page is over TLS, if it is ours.

use hyper::header::{HeaderValue, LOCATION};
use hyper::{Request, StatusCode};

use crate::house::House;
use crate::http::{Answer, HTTPS, Host, text};
use crate::metrics::Plain;

/// The way to https, on the host that was asked for, which has to be a site's: nobody is sent elsewhere.
pub fn answer<B>(house: &House, host: &Host, request: &Request<B>) -> (Plain, Answer) {
    match location(house, host, request) {
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
    host: &Host,
    request: &Request<B>,
) -> Result<HeaderValue, (StatusCode, &'static str)> {
    let name = host.name();
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
    let port = port(host.port(), house.port);
    let path = request.uri().path_and_query();
    let path = path.map_or("", |path| path.as_str());
    // `*` is the path of OPTIONS for the whole server.
    let path = if path.starts_with('/') { path } else { "/" };
    let bad = (StatusCode::BAD_REQUEST, "no address can have this path");
    HeaderValue::from_str(&format!("https://{name}{port}{path}")).map_err(|_| bad)
}

/// Who has come to port 80 knows the gateway by its usual ports, wherever it listens behind a balancer; who
/// names another port has come to its own.
fn port(asked: Option<u16>, own: u16) -> String {
    match asked {
        Some(_) if own != HTTPS => format!(":{own}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_named_where_it_has_to_be() {
        for (asked, own, named) in [
            (None, 8443, ""),
            (Some(8080), 8443, ":8443"),
            (Some(8080), 443, ""),
        ] {
            assert_eq!(port(asked, own), named);
        }
    }
}
