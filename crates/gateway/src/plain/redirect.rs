//! Redirects to https.

use hyper::header::{HeaderValue, LOCATION};
use hyper::{Request, StatusCode};

use crate::app_state::AppState;
use crate::http::{Answer, HTTPS, Host, text};
use crate::metrics::PlainAnswer;

/// Redirects to https on the same host, which has to be a site's: clients are sent nowhere else.
pub fn answer<B>(app: &AppState, host: &Host, request: &Request<B>) -> (PlainAnswer, Answer) {
    match location(app, host, request) {
        Ok(location) => {
            // Not 301, after which clients change every other method to GET.
            let mut answer = text(StatusCode::PERMANENT_REDIRECT, "this page is at https://");
            answer.headers_mut().insert(LOCATION, location);
            (PlainAnswer::Redirect, answer)
        }
        Err((status, why)) => (PlainAnswer::Refused, text(status, why)),
    }
}

fn location<B>(
    app: &AppState,
    host: &Host,
    request: &Request<B>,
) -> Result<HeaderValue, (StatusCode, &'static str)> {
    let name = host.name();
    // RFC 9110, section 15.5.20.
    let unknown = (
        StatusCode::MISDIRECTED_REQUEST,
        "no site of this name is here",
    );
    let served = app.sites.load().find(Some(name)).ok_or(unknown)?;
    if !served.is_certified() {
        let why = "this site has no certificate yet";
        return Err((StatusCode::SERVICE_UNAVAILABLE, why));
    }
    let port = port(host.port(), app.port);
    let path = request.uri().path_and_query();
    let path = path.map_or("", |path| path.as_str());
    // OPTIONS for the whole server has the path `*`.
    let path = if path.starts_with('/') { path } else { "/" };
    let bad = (StatusCode::BAD_REQUEST, "no address can have this path");
    HeaderValue::from_str(&format!("https://{name}{port}{path}")).map_err(|_| bad)
}

/// The port of the redirect. A client at port 80 knows the gateway by its default ports, whatever port it listens on
/// behind a balancer. A client that names another port has reached the gateway itself.
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
    fn a_redirect_names_a_port_only_if_necessary() {
        for (asked, own, named) in [
            (None, 8443, ""),
            (Some(8080), 8443, ":8443"),
            (Some(8080), 443, ""),
        ] {
            assert_eq!(port(asked, own), named);
        }
    }
}
