//! Events as plain data.

use std::sync::Arc;
use std::time::SystemTime;

use hsmux_token::Result;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::clock;
use crate::service_event;

/// Fields of the line itself, and the mark of a service: acts cannot use them.
pub const OWN: &[&str] = &[
    "v",
    "seq",
    "time",
    "checkpoint",
    "gap",
    "mac",
    "seal",
    "sig",
    "service",
];

/// The actor of an event. Unknown fields are left out of the line.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Actor {
    /// The user id that the kernel vouches for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The name that the program gives itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The client as it was authenticated over HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// SHA-256 of the certificate that the client has shown, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The other end of a network connection, `192.0.2.7:50412`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
}

impl Actor {
    /// A process of this machine.
    pub fn process(uid: u32, pid: i32, program: impl Into<String>) -> Self {
        Self {
            uid: Some(uid),
            pid: Some(pid),
            program: Some(program.into()),
            ..Self::default()
        }
    }

    /// A client over HTTP.
    pub fn client(actor: impl Into<String>, peer: impl Into<String>) -> Self {
        Self {
            actor: Some(actor.into()),
            peer: Some(peer.into()),
            ..Self::default()
        }
    }

    /// The same, for a peer that has shown a certificate.
    #[must_use]
    pub fn certificate(mut self, fingerprint: Option<&str>) -> Self {
        self.certificate = fingerprint.map(str::to_owned);
        self
    }
}

/// One event, which becomes one line.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    #[serde(skip)]
    pub(crate) time: SystemTime,
    #[serde(flatten, serialize_with = "inner")]
    actor: Arc<Actor>,
    #[serde(flatten)]
    what: EventKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    outcome: String,
    /// The service that has sent it: the line is not the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
}

fn inner<S: Serializer>(actor: &Arc<Actor>, to: S) -> Result<S::Ok, S::Error> {
    actor.as_ref().serialize(to)
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum EventKind {
    Act(Map<String, Value>),
    Use {
        call: &'static str,
        key: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        class: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        made: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        mechanism: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        micros: Option<u64>,
    },
}

impl Event {
    /// A use of a key, or a program's change of a token's object. `call` is `C_Sign`, `C_Decrypt`, or an HTTP
    /// service's word for it; `key` the key's name.
    pub fn key_use(actor: &Arc<Actor>, call: &'static str, key: impl Into<String>) -> Self {
        Self::new(
            actor,
            EventKind::Use {
                call,
                key: key.into(),
                label: None,
                class: None,
                made: None,
                version: None,
                mechanism: None,
                micros: None,
            },
        )
    }

    /// An administrative act: `act` is its name, `fields` are its details. A field with the name of one of the line's
    /// (`seq`, `time`, ...) is left out.
    pub fn act(actor: &Arc<Actor>, act: &str, fields: Map<String, Value>) -> Self {
        let mut map = fields;
        map.retain(|name, _| !OWN.contains(&name.as_str()));
        map.insert("act".into(), act.into());
        Self::new(actor, EventKind::Act(map))
    }

    fn new(actor: &Arc<Actor>, what: EventKind) -> Self {
        Self {
            time: clock::wall(),
            actor: Arc::clone(actor),
            what,
            request: None,
            outcome: "done".into(),
            service: None,
        }
    }

    /// With the key's label.
    #[must_use]
    pub fn label(mut self, name: Option<String>) -> Self {
        if let EventKind::Use { label, .. } = &mut self.what {
            *label = name;
        }
        self
    }

    /// Adds the class of the changed object, `private key`: both halves of a pair have one name.
    #[must_use]
    pub fn class(mut self, name: Option<&'static str>) -> Self {
        if let EventKind::Use { class, .. } = &mut self.what {
            *class = name;
        }
        self
    }

    /// Adds the name of the new token object.
    #[must_use]
    pub fn made(mut self, name: Option<String>) -> Self {
        if let EventKind::Use { made, .. } = &mut self.what {
            *made = name;
        }
        self
    }

    /// Adds the version of the key, if it has versions.
    #[must_use]
    pub fn version(mut self, number: Option<u32>) -> Self {
        if let EventKind::Use { version, .. } = &mut self.what {
            *version = number;
        }
        self
    }

    /// With the mechanism, `CKM_ECDSA`.
    #[must_use]
    pub fn mechanism(mut self, name: Option<String>) -> Self {
        if let EventKind::Use { mechanism, .. } = &mut self.what {
            *mechanism = name;
        }
        self
    }

    /// Adds the microseconds from the request to its answer.
    #[must_use]
    pub fn took(mut self, us: u64) -> Self {
        if let EventKind::Use { micros, .. } = &mut self.what {
            *micros = Some(us);
        }
        self
    }

    /// Adds the id of the request.
    #[must_use]
    pub fn request(mut self, id: impl Into<String>) -> Self {
        self.request = Some(id.into());
        self
    }

    /// Sets an outcome other than `done`: the error, or `begun`.
    #[must_use]
    pub fn outcome(mut self, outcome: impl Into<String>) -> Self {
        self.outcome = outcome.into();
        self
    }

    /// The longest [`to_bytes`](Self::to_bytes).
    pub const MAX_BYTES: usize = 12 << 10;

    /// The event and its time, for a trail of another process. A longer event loses its longest fields, and says so
    /// in a field `cut`.
    pub fn to_bytes(&self) -> Vec<u8> {
        service_event::to_bytes(self, self.time)
    }

    /// An event that a service has sent, with the service's name as its mark. The daemon does not trust these bytes:
    /// they may be anything.
    pub fn of_service(service: &str, bytes: &[u8]) -> Result<Self> {
        let sent = service_event::parse(service, bytes)?;
        Ok(Self {
            time: sent.time,
            request: sent.request,
            outcome: sent.outcome,
            service: Some(service.to_owned()),
            ..Self::new(&Arc::default(), EventKind::Act(sent.fields))
        })
    }
}

#[cfg(test)]
mod tests;
