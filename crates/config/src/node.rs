//! `[node]` and each `[[peer]]`: this host in a cluster, and members that are other hosts.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hsmux_token::permissions::SecretReaders;
use hsmux_token::{Error, Kind, Uri};
use minicbor::{Decode, Encode};
use toml::de::{DeTable, DeValue};

use super::member::process_user;
use super::reader::{Fields, Source, text, uri};
use super::sections::{WithSpan, many, one, required, unique};
use super::{Isolation, Listener, Login, Member, Socket, StartedBy, User, parse};

/// `[node]`: this host's identity for other hosts, and the addresses where it serves them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSection {
    /// Addresses that it listens on; none if it only uses others.
    pub listen: Vec<SocketAddr>,
    /// Its certificate and the authority that it trusts.
    pub identity: Identity,
    /// Connections of all peers.
    pub connections: usize,
    /// The user of its process; `None`: the daemon's.
    pub user: Option<User>,
    /// What starts its process.
    pub started_by: StartedBy,
    /// Each `[[peer]]`: hosts that it serves.
    pub peers: Vec<Allowed>,
}

/// `[[peer]]`: a host that may use this one's tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// The name in its certificate.
    pub name: String,
    /// URIs of the objects that it sees; empty: all.
    pub keys: Vec<Uri>,
    /// Whether its broker may use the keys of this host's broker.
    pub broker_keys: bool,
}

/// The reason why a host of this name is refused.
pub fn no_peer(name: &str) -> Error {
    let message = format!(
        "{name:?} is no [[peer]] of this host, which serves nobody else: add one there, then hsmux reload"
    );
    Error::token(Kind::Forbidden, message)
}

impl NodeSection {
    /// Returns the peer of this name.
    pub fn peer(&self, name: &str) -> Option<&Allowed> {
        self.peers.iter().find(|peer| peer.name == name)
    }
}

impl Allowed {
    /// Its rights as a listener: it may use keys and change nothing.
    pub fn listener(&self) -> Listener {
        Listener {
            socket: Socket {
                path: PathBuf::from(format!("[[peer]] {}", self.name)),
                ..Socket::default()
            },
            keys: self.keys.clone(),
            broker_keys: self.broker_keys,
            read_only: true,
            direct: false,
            login: Login::Peer,
            pin: None,
        }
    }
}

pub fn read(
    source: &mut Source<'_>,
    document: &DeTable<'_>,
    members: &[Member],
) -> Option<NodeSection> {
    let peers = many(source, document, "peer", |fields| {
        Some((peer(fields)?, fields.span_of("name")))
    });
    unique(source, &peers, "peer", |(peer, span)| {
        (peer.name.clone(), span.clone())
    });
    if !document.contains_key("node") {
        if let Some(peer) = document.get("peer") {
            let message = "[[peer]] is who may use this host's tokens: add [node]";
            source.error(peer.span(), message);
        }
        return None;
    }
    let served = document.contains_key("peer");
    let links = members.iter().any(|member| member.node.is_some());
    let section = one(source, document, "node", |fields| {
        node(fields, served, links)
    })?;
    if section.listen.is_empty() && !links {
        let message = "[node] neither listens nor is used: add listen, or a [[token]] with node";
        source.error(document["node"].span(), message);
    }
    Some(NodeSection {
        peers: peers.into_iter().map(|(peer, _)| peer).collect(),
        ..section
    })
}

fn node(fields: &mut Fields<'_, '_, '_>, served: bool, links: bool) -> Option<NodeSection> {
    let listen: Option<Vec<SocketAddr>> = fields.list("listen", |value: &DeValue<'_>| {
        let text = text(value)?;
        text.parse()
            .map_err(|_| format!("{text:?} is not an address and a port"))
    });
    let listen = listen.unwrap_or_default();
    if listen.is_empty() && served {
        fields.missing("listen");
    }
    let connections = fields.number("connections", 8..=100_000).unwrap_or(4096);
    let certificate = required(fields, "certificate", |fields| fields.file("certificate"));
    let ca = required(fields, "ca", |fields| fields.trust_file("node", "ca"));
    let user = process_user(fields);
    if user.is_some() && links {
        let message = "a host with [[token]] node = reads key as the daemon's user, so key cannot be another \
                       user's: take out user, and have the node run as the daemon's user";
        fields.source.error(fields.span_of("user"), message);
    }
    let uid = user.as_ref().and_then(User::id);
    let key = required(fields, "key", |fields| {
        fields.secret_file_of("key", SecretReaders::Owner, uid)
    });
    let revoked = fields.file("revoked");
    Some(NodeSection {
        listen,
        identity: Identity {
            certificate: certificate?,
            key: key?,
            ca: ca?,
            revoked,
        },
        connections: connections as usize,
        user,
        started_by: parse::started_by(fields),
        peers: Vec::new(),
    })
}

fn peer(fields: &mut Fields<'_, '_, '_>) -> Option<Allowed> {
    let name = required(fields, "name", |fields| {
        fields.read("name", |value| node_name(text(value)?))
    });
    let keys = fields.list("keys", uri).unwrap_or_default();
    let broker_keys = fields.flag("broker_keys").unwrap_or(false);
    Some(Allowed {
        name: name?,
        keys,
        broker_keys,
    })
}

/// Checks a host name as certificates have it: letters, digits, hyphens and dots, in lower case.
pub fn node_name(name: &str) -> Result<String, String> {
    let name = name.to_ascii_lowercase();
    if name.parse::<std::net::IpAddr>().is_ok() {
        return Err(format!(
            "{name:?} is an address, and no name of a node: certificates of hosts have names"
        ));
    }
    let good = |label: &str| {
        let within = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let ends = label.starts_with('-') || label.ends_with('-');
        !label.is_empty() && label.len() <= 63 && !ends && label.bytes().all(within)
    };
    if name.len() <= 64 && name.split('.').all(good) {
        return Ok(name);
    }
    Err(format!(
        "{name:?} is no name of a node: letters, digits, hyphens and dots, as in host names"
    ))
}

/// Keys of a `[[token]]` that apply to modules only.
const OF_MODULES: [&str; 11] = [
    "module",
    "uri",
    "pin",
    "isolation",
    "workers",
    "env",
    "sandbox",
    "folders",
    "user",
    "watch",
    "copies",
];

/// Reads a `[[token]]` that is another host.
pub fn member(fields: &mut Fields<'_, '_, '_>, identity: bool) -> Option<WithSpan<Member>> {
    if !identity {
        let message = "a [[token]] with node needs [node], which says what this host shows: \
                       certificate, key and ca";
        fields.source.error(fields.span_of("node"), message);
    }
    for key in OF_MODULES {
        if fields.has(key) {
            let message = format!("{key} is for a token of a module; with node = take it out");
            fields.source.error(fields.span_of(key), message);
        }
    }
    let address = fields.read("node", |value| address(text(value)?));
    let name = fields.read("name", |value| node_name(text(value)?));
    let address = address?;
    let host = address.rsplit_once(':').map_or("", |(host, _)| host);
    let name = match (name, node_name(host)) {
        (Some(name), _) => name,
        (None, Ok(host)) => host,
        (None, _) => {
            if !fields.has("name") {
                let message = "an address names no node: add name =, as its certificate says it";
                fields.source.error(fields.span_of("node"), message);
            }
            return None;
        }
    };
    // The peer has its own queue, and links have their own liveness check.
    let timeout = fields.has("timeout").then(|| fields.duration("timeout"));
    let member = Member {
        timeout: timeout.flatten().unwrap_or(Duration::from_secs(60)),
        name,
        node: Some(address),
        module: PathBuf::new(),
        uri: Uri::default(),
        pin: None,
        isolation: Isolation::Process,
        sessions: Some(fields.number("sessions", 1..=250).unwrap_or(64) as u32),
        workers: 1,
        ..super::member::shared(fields)
    };
    Some((member, fields.span.clone()))
}

fn address(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is not HOST:PORT");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let good = match bare {
        Some(six) => six.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains([':', '/', '@', ' ']),
    };
    match port.parse::<u16>() {
        Ok(port) if good && port > 0 => Ok(text.to_owned()),
        _ => Err(wrong()),
    }
}

/// The identity of a host for other hosts: PEM files.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct Identity {
    /// Its certificate and chain.
    #[n(0)]
    pub certificate: PathBuf,
    /// Its private key.
    #[n(1)]
    pub key: PathBuf,
    /// The authority's certificate.
    #[n(2)]
    pub ca: PathBuf,
    /// The authority's list of revoked certificates.
    #[n(3)]
    pub revoked: Option<PathBuf>,
}

impl Identity {
    /// All its files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let needed = [&self.certificate, &self.key, &self.ca];
        needed.into_iter().chain(&self.revoked).map(|file| &**file)
    }
}
