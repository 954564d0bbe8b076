//! What the access log has of a request or a tunnel.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use boring::ssl::SslRef;
use boring::x509::X509NameRef;
use hsmux_edge::access_log::{AccessDetails, AccessRecord, JsonLine};
use hyper::{Request, StatusCode};

use crate::app_state::AppState;
use crate::backend::Backend;
use crate::sites::ServedSite;

/// The record of a request or a tunnel; `None`: the log is off.
pub type Access = Option<AccessRecord<RequestDetails>>;

/// A client, as all requests of its connection have it.
pub struct AccessClient {
    from: SocketAddr,
    tls: Option<TlsDetails>,
}

struct TlsDetails {
    site: Arc<ServedSite>,
    version: &'static str,
    resumed: bool,
    /// The subject of the client's certificate.
    subject: Option<String>,
}

/// What is known of a request besides its head.
pub struct RequestDetails {
    client: Arc<AccessClient>,
    /// The back end that was asked last, and the time from then on until its answer began.
    backend: Option<(String, Duration)>,
}

/// A request begins.
pub fn of_request<B>(app: &AppState, client: &Arc<AccessClient>, request: &Request<B>) -> Access {
    let details = || RequestDetails::of(client);
    app.access_log.request(request, details)
}

/// A tunnel begins.
pub fn of_connection(app: &AppState, client: &Arc<AccessClient>) -> Access {
    app.access_log.connection(|| RequestDetails::of(client))
}

/// A connection of HTTP/1.1 has ended. If its last bytes were no request, hyper has refused them.
pub fn of_end<T>(
    app: &AppState,
    client: &Arc<AccessClient>,
    ended: Result<T, Box<dyn StdError + Send + Sync>>,
) {
    // It does not matter how else a client ends its connection.
    let Err(error) = ended else { return };
    let Some(error) = error.downcast_ref::<hyper::Error>() else {
        return;
    };
    if !error.is_parse() {
        return;
    }
    if let Some(mut record) = of_connection(app, client) {
        record.answered(if error.is_parse_too_large() {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
        } else {
            StatusCode::BAD_REQUEST
        });
        record.complete();
    }
}

impl AccessClient {
    /// A client without TLS.
    pub fn of(from: SocketAddr) -> Self {
        Self { from, tls: None }
    }

    /// A client of a site, after its handshake.
    pub fn of_tls(
        from: SocketAddr,
        site: &Arc<ServedSite>,
        version: &'static str,
        ssl: &SslRef,
    ) -> Self {
        let certificate = ssl.peer_certificate();
        let tls = TlsDetails {
            site: Arc::clone(site),
            version,
            resumed: ssl.session_reused(),
            subject: certificate.map(|own| subject(own.subject_name())),
        };
        Self {
            from,
            tls: Some(tls),
        }
    }
}

impl RequestDetails {
    fn of(client: &Arc<AccessClient>) -> Self {
        Self {
            client: Arc::clone(client),
            backend: None,
        }
    }

    /// A back end was asked `since` then, and has answered or failed.
    pub fn used(&mut self, backend: &Backend, since: Instant) {
        self.backend = Some((backend.url().to_string(), since.elapsed()));
    }
}

impl AccessDetails for RequestDetails {
    const LOGS_REFERER: bool = true;

    fn client(&self) -> Option<SocketAddr> {
        Some(self.client.from)
    }

    fn user(&self) -> Option<&str> {
        self.client.tls.as_ref()?.subject.as_deref()
    }

    fn add_to(&self, line: &mut JsonLine) {
        if let Some((url, took)) = &self.backend {
            line.text("backend", url);
            line.millis("backend_ms", *took);
        }
        let Some(tls) = &self.client.tls else { return };
        line.text("site", &tls.site.site.names[0]);
        line.text("tls", tls.version);
        line.flag("resumed", tls.resumed);
        if let Some(subject) = &tls.subject {
            line.text("subject", subject);
        }
    }
}

/// A name of X.509, the most specific part first, with the escapes of RFC 4514.
fn subject(name: &X509NameRef) -> String {
    let mut text = String::new();
    let parts: Vec<_> = name.entries().collect();
    for part in parts.into_iter().rev() {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(part.object().nid().short_name().unwrap_or("UNDEF"));
        text.push('=');
        let value = part.data().as_utf8();
        for c in value.iter().flat_map(|value| value.chars()) {
            if matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=') {
                text.push('\\');
            }
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use boring::x509::X509Name;

    use super::*;

    #[test]
    fn a_value_of_a_subject_is_no_other_part_of_it() {
        let mut name = X509Name::builder().unwrap();
        name.append_entry_by_text("O", "Example").unwrap();
        name.append_entry_by_text("CN", "a,O=b").unwrap();
        assert_eq!(subject(&name.build()), "CN=a\\,O\\=b,O=Example");
    }
}
