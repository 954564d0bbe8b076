//! What a listener grants: who may connect, which objects are there, what C_Login needs.

use std::sync::Arc;

use hsmux_config::{Allowed, Config, Listener, Login, PinSource, Socket, User};
use hsmux_pool::{Catalogue, Entry};
use hsmux_token::{Class, Error, Kind, Object, Result, ck};

use crate::login::PinHash;

/// A listener's rights as they are now; replaced as a whole when the configuration is read again.
pub struct Settings {
    /// What the configuration says.
    pub listener: Listener,
    /// The PIN of C_Login, or why there is none.
    pub pin: Result<Arc<PinHash>>,
    /// The users of `allow_users` that exist.
    users: Vec<u32>,
    /// The listener was taken out of the configuration; its connections live on, but are refused.
    pub closed: bool,
    /// The kind of clients.
    pub clients: Clients,
    /// What of the pool's queue is for that host.
    pub share: Option<usize>,
    /// Counts the changes of the listener, for [`crate::view::epoch`].
    pub edition: u64,
}

/// Who connects to a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clients {
    /// Programs of this host.
    Programs,
    /// The pool of another host: tokens of this one alone serve it.
    Host,
    /// The pool of the gateway of this host.
    Gateway,
    /// The pool of the broker of this host.
    Broker,
}

impl Clients {
    /// Whether it is a pool, of which this one is a member.
    pub fn is_pool(self) -> bool {
        self != Self::Programs
    }

    /// Whether it is a service, which the daemon has started.
    pub fn is_service(self) -> bool {
        matches!(self, Self::Gateway | Self::Broker)
    }

    /// The name of the service.
    pub fn name(self) -> &'static str {
        match self {
            Self::Programs => "program",
            Self::Host => "host",
            Self::Gateway => "gateway",
            Self::Broker => "broker",
        }
    }
}

impl Settings {
    /// Reads and hashes the listener's PIN, which takes some milliseconds.
    pub fn new(config: &Config, listener: &Listener) -> Self {
        Self {
            listener: listener.clone(),
            pin: pin(config, listener),
            users: users(&listener.socket.allow_users),
            closed: false,
            clients: Clients::Programs,
            share: None,
            edition: 0,
        }
    }

    /// What another host may do.
    pub fn of_host(config: &Config, peer: &Allowed) -> Self {
        let peers = config.node.as_ref().map_or(0, |node| node.peers.len());
        Self {
            clients: Clients::Host,
            // As much is left for the applications of this one.
            share: Some(config.pool.queue / (peers + 1)),
            ..Self::new(config, &peer.listener())
        }
    }

    /// What a service may do. The gateway signs, and changes nothing; [`crate::rights`] has the broker's rights.
    pub fn of_service(config: &Config, clients: Clients) -> Self {
        let is_broker = clients == Clients::Broker;
        let listener = Listener {
            socket: Socket {
                path: format!("[{}]", clients.name()).into(),
                ..Socket::default()
            },
            keys: Vec::new(),
            broker_keys: is_broker,
            read_only: !is_broker,
            direct: config.listeners.iter().all(|listener| listener.direct),
            login: Login::Peer,
            pin: None,
        };
        Self {
            clients,
            ..Self::new(config, &listener)
        }
    }

    /// True if workers may serve its connections directly.
    pub fn hands_over(&self) -> bool {
        self.listener.direct && self.clients != Clients::Host
    }

    /// The same listener, taken out of service.
    pub fn close(&self) -> Self {
        Self {
            listener: self.listener.clone(),
            pin: self.pin.clone(),
            users: Vec::new(),
            closed: true,
            clients: self.clients,
            share: self.share,
            edition: self.edition,
        }
    }

    /// Checks that this user may connect, or stay. The kernel enforces the socket's mode.
    ///
    /// Asked on the reactor's thread: it says the user's number, for the name may be a directory
    /// service away.
    pub fn admit(&self, uid: u32) -> Result<()> {
        let socket = &self.listener.socket;
        if self.closed {
            let message = format!("{}: this listener is closed", socket.path.display());
            return Err(Error::request(Kind::Forbidden, message));
        }
        if socket.allow_users.is_empty() || is_own(uid) || self.users.contains(&uid) {
            return Ok(());
        }
        let message = format!(
            "{}: user {uid} may not connect; allow_users names those who may",
            socket.path.display(),
        );
        Err(Error::request(Kind::Forbidden, message))
    }

    /// True if clients of the listener may see this object.
    pub fn offers(&self, catalogue: &Catalogue, entry: &Entry) -> bool {
        let shown = if self.guards(entry) {
            let mut keys = self.listener.keys.iter();
            keys.any(|uri| uri.names_by_label_or_id() && uri.matches_object(&entry.object))
        } else {
            self.shows(&entry.object)
        };
        let for_them = match self.clients {
            Clients::Programs | Clients::Broker => true,
            Clients::Host => catalogue.is_own(entry),
            // What TLS needs.
            Clients::Gateway => entry.object.id.class != Class::SECRET_KEY || signs(&entry.object),
        };
        shown && for_them
    }

    /// True if it is a key of the broker that this listener has to name, with limited rights.
    pub fn guards(&self, entry: &Entry) -> bool {
        entry.broker_key && !self.listener.broker_keys
    }

    /// True if the listener's `keys` contain this object. Keys of the broker have rules of their own.
    pub fn shows(&self, object: &Object) -> bool {
        let keys = &self.listener.keys;
        keys.is_empty() || keys.iter().any(|uri| uri.matches_object(object))
    }
}

/// Root and the daemon's own user may do everything anyway.
pub fn is_own(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// The ids of users who exist; the others are told once.
pub fn users(named: &[User]) -> Vec<u32> {
    let known = |user: &User| {
        let id = user.id();
        if id.is_none() {
            tracing::warn!(%user, "allow_users names a user who does not exist");
        }
        id
    };
    named.iter().filter_map(known).collect()
}

/// True if an object is there only after C_Login. Keys that do not say are private
/// (PKCS#11 3.0, section 4.4: the default is the token's).
pub fn is_private(object: &Object) -> bool {
    use hsmux_token::Class;
    let secret = matches!(object.id.class, Class::PRIVATE_KEY | Class::SECRET_KEY);
    object.attributes.flag(ck::CKA_PRIVATE).unwrap_or(secret)
}

/// Whether it is a secret key for signatures, not for ciphertexts.
fn signs(key: &Object) -> bool {
    key.attributes.number(ck::CKA_KEY_TYPE) == Some(ck::CKK_GENERIC_SECRET)
}

/// Where the PIN of a listener comes from: without one of its own it is that of the first member.
pub fn pin_source<'a>(config: &'a Config, listener: &'a Listener) -> Option<&'a PinSource> {
    let first = || config.tokens.iter().find_map(|member| member.pin.as_ref());
    listener.pin.as_ref().or_else(first)
}

fn pin(config: &Config, listener: &Listener) -> Result<Arc<PinHash>> {
    match pin_source(config, listener) {
        _ if listener.login == Login::Peer => Err(Error::request(
            Kind::Unsupported,
            "this listener needs no PIN",
        )),
        Some(source) => PinHash::of(source).map(Arc::new),
        None => {
            let message = format!(
                "there is no PIN for C_Login: neither {} nor a [[token]] has pin. Add pin = {{ file = \"...\" }} there, \
                 then: hsmux reload",
                config.section_of(listener)
            );
            Err(Error::pool(Kind::Environment, message))
        }
    }
}
