//! What the access log has of a request.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use hsmux_edge::access_log::{AccessDetails, AccessLog, AccessRecord, JsonLine};

use super::Peer;
use crate::openapi;

/// The record of a request; `None`: the log is off.
pub type Access = Option<AccessRecord<RequestDetails>>;

/// What is known of a request besides its head.
pub struct RequestDetails {
    peer: Arc<Peer>,
    /// `-` for a path that is none.
    route: &'static str,
    found: Arc<RequestFacts>,
}

/// What the handler of a request finds out. It is among the request's extensions.
#[derive(Default)]
pub struct RequestFacts {
    /// The request's id, as on the audit trail.
    pub id: OnceLock<String>,
    /// The client, as policies name it.
    pub client: OnceLock<String>,
    /// The name of the key in the path, as on the audit trail.
    pub key: OnceLock<String>,
}

/// A request begins.
pub fn begin<B>(log: &Arc<AccessLog>, peer: &Arc<Peer>, request: &mut Request<B>) -> Access {
    let found = Arc::<RequestFacts>::default();
    let record = log.request(request, || RequestDetails {
        peer: Arc::clone(peer),
        route: openapi::route(request.uri().path()).unwrap_or("-"),
        found: Arc::clone(&found),
    })?;
    request.extensions_mut().insert(found);
    Some(record)
}

impl AccessDetails for RequestDetails {
    const LOGS_REFERER: bool = false;

    fn client(&self) -> Option<SocketAddr> {
        self.peer.address.parse().ok()
    }

    fn user(&self) -> Option<&str> {
        self.found.client.get().map(String::as_str)
    }

    /// The route: clients may write a PIN into a URI of a key, and what they like into other paths.
    fn path(&self) -> Option<Cow<'_, str>> {
        Some(match self.found.key.get() {
            Some(key) => self.route.replace("{name}", key).into(),
            None => self.route.into(),
        })
    }

    fn add_to(&self, line: &mut JsonLine) {
        for (name, value) in [
            ("user", self.found.client.get()),
            ("key", self.found.key.get()),
            ("request_id", self.found.id.get()),
        ] {
            if let Some(value) = value {
                line.text(name, value);
            }
        }
        let Some(tls) = self.peer.tls else { return };
        line.text("tls", tls.version);
        line.flag("resumed", tls.resumed);
        let mut identities = self.peer.identities.iter();
        if let Some(subject) = identities.find_map(|one| one.strip_prefix("subject:")) {
            line.text("subject", subject);
        }
    }
}
