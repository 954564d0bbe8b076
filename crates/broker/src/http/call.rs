//! A request: its client and its rights. Its body is read only after both are known.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::extract::{FromRequest, RawPathParams, Request};
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use hsmux_audit::Actor;
use hsmux_config::Action;
use hsmux_token::ObjectId;
use hsmux_traces::Trace;
use parking_lot::Mutex;

use super::access::RequestFacts;
use super::identify::identify;
use super::limits::AdmittedRequest;
use super::{Broker, reply};
use crate::auth::ClientIdentity;
use crate::engine::{Engine, spelling};
use crate::key::KeyName;
use crate::metrics::KeySeries;
use crate::random::request_name;
use crate::refusal::Refusal;
use crate::traces;

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// `192.0.2.7:50412`, or `unix`.
    pub address: String,
    /// The IP address; `None`: this machine.
    pub ip: Option<IpAddr>,
    /// True for HTTPS.
    pub secure: bool,
    /// The identities of the connection: a certificate, a user id.
    pub identities: Vec<String>,
    /// Its TLS, for the access log.
    pub tls: Option<PeerTls>,
}

/// TLS of a connection.
#[derive(Clone, Copy, Debug)]
pub struct PeerTls {
    /// `1.3`.
    pub version: &'static str,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
}

/// A request with its client, as far as the client has identified itself.
pub struct ApiCall {
    pub(super) broker: Arc<Broker>,
    client: ClientIdentity,
    pub(super) admitted: Option<Arc<AdmittedRequest>>,
    peer: Arc<Peer>,
    /// Made on first use.
    actor: OnceLock<Arc<Actor>>,
    id: String,
    method: Method,
    query: Vec<(String, String)>,
    name: String,
    variant: Option<String>,
    source: Option<String>,
    /// The metrics of the key, from the first use on.
    pub(super) series: OnceLock<Arc<KeySeries>>,
    /// The external key that it names.
    pub(super) object: OnceLock<ObjectId>,
    /// If it is traced.
    pub(super) trace: Option<Arc<Trace>>,
    /// Behind a lock only because a body alone is not `Sync`.
    pub(super) body: Mutex<Option<Body>>,
}

impl FromRequest<Arc<Broker>> for ApiCall {
    type Rejection = Response;

    async fn from_request(request: Request, broker: &Arc<Broker>) -> Result<Self, Response> {
        let trace = traces::begin(&broker.traces, &request);
        let read = traces::follow(trace.clone(), pin!(Self::read(request, broker))).await;
        read.map_err(|refusal| reply::traced(trace.as_deref(), reply::counted(broker, &refusal)))
    }
}

impl ApiCall {
    async fn read(request: Request, broker: &Arc<Broker>) -> Result<Self, Refusal> {
        use axum::RequestExt;
        let (mut request, id) = (request, request_id()?);
        let params = request.extract_parts::<RawPathParams>().await;
        let params = params.map_err(|e| Refusal::bad(e.to_string()))?;
        let param = |wanted: &str| {
            let mut found = params.iter().filter(|(name, _)| *name == wanted);
            found.next().map(|(_, value)| value.to_owned())
        };
        let (name, variant) = (param("name").unwrap_or_default(), param("variant"));
        let source = param("source");
        let (parts, body) = request.into_parts();
        let peer = parts
            .extensions
            .get::<Arc<Peer>>()
            .cloned()
            .unwrap_or_default();
        let facts = parts.extensions.get::<Arc<RequestFacts>>().cloned();
        if let Some(facts) = &facts {
            let _ = facts.id.set(id.clone());
            if !name.is_empty() {
                let _ = facts.key.set(spelling(&name));
            }
        }
        let trace = traces::current();
        if let Some(trace) = &trace {
            // The id in the audit trail and in the answer.
            trace.say("hsmux.request_id", id.clone());
            // Other names of keys are the client's own words.
            if name.parse::<KeyName>().is_ok() {
                trace.say("hsmux.key", name.clone());
            }
        }
        let identified = identify(broker, &parts.headers, &peer);
        let (client, admitted) = traces::timed("authorise", pin!(identified)).await?;
        if let Some(facts) = facts.filter(|_| client.is_known()) {
            let _ = facts.client.set(client.name().to_owned());
        }
        refuse_what_is_not_here(&parts.headers)?;
        Ok(Self {
            peer,
            actor: OnceLock::new(),
            admitted: admitted.map(Arc::new),
            broker: Arc::clone(broker),
            client,
            id,
            method: parts.method,
            query: query(parts.uri.query().unwrap_or_default()),
            name,
            variant,
            source,
            series: OnceLock::new(),
            object: OnceLock::new(),
            trace,
            body: Mutex::new(Some(body)),
        })
    }

    /// Refuses what no policy allows with this key; the refusal goes to the trail.
    pub fn may(&self, action: Action) -> Result<(), Refusal> {
        let admitted = self.may_within(action);
        if let Err(refusal) = &admitted {
            self.denied(action, refusal);
        }
        admitted
    }

    /// The same within an operation, which writes its own line.
    pub fn may_within(&self, action: Action) -> Result<(), Refusal> {
        let policy = self.broker.policy.load();
        policy.admit(&self.client, action, &self.name)
    }

    /// The state that all requests share.
    pub fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// The keys and the pool.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.broker.engine
    }

    /// The client.
    pub fn client(&self) -> &ClientIdentity {
        &self.client
    }

    /// The client's quota; `None` for a client that no policy names.
    pub fn admitted(&self) -> Option<&AdmittedRequest> {
        self.admitted.as_deref()
    }

    /// The other end of the connection.
    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The client, for the trail.
    pub(super) fn actor(&self) -> &Arc<Actor> {
        self.actor.get_or_init(|| {
            let actor = Actor::client(self.client.to_string(), &self.peer.address);
            Arc::new(actor.certificate(self.client.fingerprint()))
        })
    }

    /// The request's id, in the answer and on the trail.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// GET, POST, LIST.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The key's name in the path, or nothing.
    pub fn key(&self) -> &str {
        &self.name
    }

    /// The other word of the path: a hash, a number, or a variant.
    pub fn variant(&self) -> Option<&str> {
        self.variant.as_deref()
    }

    /// The source of random bytes in the path.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// A parameter of the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Headers that ask for unsupported features, with the values that ask for nothing. A wrapped answer would go out in
/// plain, to readers that the client does not trust. A key of another namespace is another key.
const NOT_HERE: [(&str, &[&str], &str); 2] = [
    (
        "x-vault-wrap-ttl",
        &["", "0", "0s"],
        "X-Vault-Wrap-TTL: answers are not wrapped here; leave it out, and protect what is answered yourself",
    ),
    (
        "x-vault-namespace",
        &["", "/", "root", "root/"],
        "X-Vault-Namespace: there are no namespaces here; leave it out",
    ),
];

fn refuse_what_is_not_here(headers: &HeaderMap) -> Result<(), Refusal> {
    for (name, nothing, why) in NOT_HERE {
        if let Some(value) = headers.get(name)
            && !nothing.iter().any(|nothing| value == nothing)
        {
            return Err(Refusal::bad(why));
        }
    }
    Ok(())
}

fn query(text: &str) -> Vec<(String, String)> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// A random UUID (RFC 9562, section 5.4).
fn request_id() -> Result<String, Refusal> {
    let mut bytes = request_name()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut id = String::with_capacity(36);
    for (place, byte) in bytes.into_iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            id.push('-');
        }
        for digit in [byte >> 4, byte & 0x0f] {
            id.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_names_of_their_own() {
        let (one, other) = (request_id().unwrap(), request_id().unwrap());
        assert_ne!(one, other);
        let lengths: Vec<_> = one.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&one[14..15], "4");
        assert!("89ab".contains(&one[19..20]));
        let hex = |c: char| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c);
        assert!(one.chars().all(hex));
    }
}
