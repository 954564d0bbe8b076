//! `[broker]`, each `[[policy]]` and each `[[limit]]`: the broker's listeners, rights and limits.

mod jwt;
mod limits;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::access_log::{AccessLog, access_log};
use super::member::process_user;
use super::reader::{ExternalReference, Fields, suggestion, text};
use super::site::revocation_lists;
use super::{Socket, StartedBy, User, parse};
use hsmux_token::permissions::SecretReaders;

pub use jwt::{JwkSet, JwkUrl, Jwt};
pub use limits::{Allowance, Limit, Limits, limit};

/// `[broker]`: the service over HTTP.
#[derive(Clone, PartialEq, Debug)]
pub struct BrokerSection {
    /// The user of its process; `None`: the daemon's.
    pub user: Option<User>,
    /// What starts its process.
    pub started_by: StartedBy,
    /// Addresses that it listens on.
    pub listen: Vec<SocketAddr>,
    /// Its unix socket.
    pub socket: Option<Socket>,
    /// HTTPS, on every address.
    pub tls: Option<Tls>,
    /// The SQLite file of names, versions and clients' tokens.
    pub store: PathBuf,
    /// Limits of clients, including each `[[limit]]`.
    pub limits: Limits,
    /// The issuer of accepted JWTs.
    pub jwt: Option<Jwt>,
    /// Whether everybody may read `/metrics`.
    pub metrics: bool,
    /// Where requests are logged; `None`: nowhere.
    pub access_log: Option<AccessLog>,
    /// Development mode: everybody may do everything, on loopback.
    pub dev: bool,
    /// Each `[[policy]]`.
    pub policies: Vec<Rule>,
}

/// HTTPS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// PEM: the server's certificate, then its chain.
    pub certificate: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
    /// PEM: the authorities of client certificates.
    pub client_ca: Option<PathBuf>,
    /// PEM or DER: revocation lists of client certificates; empty: revocation is not checked.
    pub client_crl: Vec<PathBuf>,
}

/// `[[policy]]`: permits some clients some operations with some keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Clients: `token:NAME`, `jwt:NAME`, `subject:CN=...`, `dns:...`, `uri:...`, `email:...`, `fingerprint:HEX`,
    /// `uid:N`.
    pub clients: Vec<String>,
    /// Names of keys; `*` matches any characters.
    pub keys: Vec<String>,
    /// Permitted operations.
    pub allow: Vec<Action>,
}

macro_rules! actions {
    ($($action:ident $word:literal $help:literal,)*) => {
        /// An operation that a policy can permit.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Action {
            $(#[doc = $help] $action,)*
        }

        impl Action {
            /// All, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$action,)*];

            /// Its name in the configuration.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$action => $word,)*
                }
            }
        }
    };
}

actions! {
    Encrypt "encrypt" "Encipher.",
    Decrypt "decrypt" "Decipher.",
    Rewrap "rewrap" "Encipher anew with a newer version.",
    Datakey "datakey" "A new key for the client's own use, in clear and enciphered.",
    WrappedDatakey "datakey-wrapped" "The same, enciphered only.",
    Sign "sign" "Sign.",
    Verify "verify" "Verify a signature or an HMAC.",
    Hmac "hmac" "Make an HMAC.",
    Random "random" "Random bytes of a token.",
    Hash "hash" "The digest of data.",
    List "list" "The names of all keys.",
    Read "read" "A key's versions and public halves.",
    Create "create" "Make a key.",
    Config "config" "Change what may be done with a key.",
    Rotate "rotate" "Make a new version.",
    Trim "trim" "Destroy old versions.",
    Delete "delete" "Delete a key.",
    Csr "csr" "Have a certification request signed.",
    SetCertificate "set-certificate" "Keep a certificate with a key.",
    RawCbc "raw-cbc" "AES-CBC without authentication: whoever may alter ciphertexts reads them by the answers.",
    Pkcs1Decrypt "pkcs1-decrypt" "RSA decryption with PKCS#1 v1.5 padding.",
    Metrics "metrics" "Read `/metrics`, which names all keys; it matters for no key.",
}

impl Action {
    /// Whether `"*"` excludes it: it has to be listed by name.
    pub fn by_name_only(self) -> bool {
        matches!(self, Self::RawCbc | Self::Pkcs1Decrypt | Self::Metrics)
    }
}

/// Kinds of identities.
const CLIENTS: &[&str] = &[
    "token:",
    "jwt:",
    "subject:",
    "dns:",
    "uri:",
    "email:",
    "fingerprint:",
    "uid:",
];

pub fn broker(fields: &mut Fields<'_, '_, '_>, state: &Path) -> BrokerSection {
    let listen: Option<Vec<SocketAddr>> = fields.list("listen", |value| {
        let text = text(value)?;
        text.parse()
            .map_err(|_| format!("{text:?} is not an address and a port"))
    });
    let empty = listen.as_ref().map_or(!fields.has("listen"), Vec::is_empty);
    if empty && !fields.has("socket") {
        let message =
            "[broker] listens nowhere: give listen = [\"127.0.0.1:8200\"] or socket = ...";
        fields.source.error(fields.span_of("listen"), message);
    }
    let socket = fields.path("socket").map(|path| {
        fields.names("socket", ExternalReference::Socket(path.clone()));
        Socket {
            path,
            mode: fields.mode("mode").unwrap_or(0o660),
            ..Socket::default()
        }
    });
    let user = process_user(fields);
    let store = fields.path("store");
    if user.is_some() && store.is_none() {
        let message = "user: another user cannot write to the state folder; give store = ..., in a folder of that user";
        fields.source.error(fields.span_of("user"), message);
    }
    let section = BrokerSection {
        listen: listen.unwrap_or_default(),
        socket,
        tls: tls(fields, user.as_ref().and_then(User::id)),
        store: store.unwrap_or_else(|| state.join("broker.sqlite")),
        user,
        started_by: parse::started_by(fields),
        limits: limits::limits(fields),
        jwt: jwt::jwt(fields),
        metrics: fields.flag("metrics").unwrap_or(false),
        access_log: access_log(fields),
        dev: fields.flag("dev").unwrap_or(false),
        policies: Vec::new(),
    };
    let strangers = section.listen.iter().any(|at| !at.ip().is_loopback());
    if section.dev && (strangers || section.socket.is_some()) {
        let message = "dev = true lets everybody do everything: it listens on loopback only";
        fields.source.error(fields.span_of("dev"), message);
    } else if strangers && section.tls.is_none() {
        let message = "clients' tokens would travel in clear: give certificate and key, \
                       or listen on loopback";
        fields.source.error(fields.span_of("listen"), message);
    }
    section
}

fn tls(fields: &mut Fields<'_, '_, '_>, user: Option<u32>) -> Option<Tls> {
    let key = fields.secret_file_of("key", SecretReaders::Group, user);
    let certificate = fields.file("certificate");
    let client_ca = fields.trust_file("broker", "client_ca");
    let client_crl = revocation_lists(fields, "broker", client_ca.is_some());
    match (certificate, key) {
        (Some(certificate), Some(key)) => Some(Tls {
            certificate,
            key,
            client_ca,
            client_crl,
        }),
        (None, None) => {
            if client_ca.is_some() {
                let message = "client_ca needs certificate and key: it is for HTTPS";
                fields.source.error(fields.span_of("client_ca"), message);
            }
            None
        }
        (None, Some(_)) => {
            fields.missing("certificate");
            None
        }
        (Some(_), None) => {
            fields.missing("key");
            None
        }
    }
}

pub fn rule(fields: &mut Fields<'_, '_, '_>) -> Option<Rule> {
    for name in ["clients", "keys", "allow"] {
        if !fields.has(name) {
            fields.missing(name);
        }
    }
    let clients = clients(fields);
    let keys = fields.list("keys", |value| Ok(text(value)?.to_owned()));
    let allow = fields.list("allow", |value| actions(text(value)?));
    Some(Rule {
        clients: clients?,
        keys: keys?,
        allow: allow?.concat(),
    })
}

fn clients(fields: &mut Fields<'_, '_, '_>) -> Option<Vec<String>> {
    fields.list("clients", |value| {
        let text = text(value)?;
        let known = CLIENTS
            .iter()
            .any(|kind| text.starts_with(kind) && text.len() > kind.len());
        if known || text == "*" {
            return Ok(text.to_owned());
        }
        Err(format!(
            "{text:?} is no client; there are {}...",
            CLIENTS.join("..., ")
        ))
    })
}

fn actions(word: &str) -> Result<Vec<Action>, String> {
    let all = || Action::ALL.iter().copied();
    if word == "*" {
        return Ok(all().filter(|action| !action.by_name_only()).collect());
    }
    let found = all().find(|action| action.word() == word);
    found.map(|action| vec![action]).ok_or_else(|| {
        let hint = suggestion(word, Action::ALL.iter().map(|action| action.word()));
        format!("{word:?} is unknown{hint}")
    })
}
