//! `[gateway]` and each `[[site]]`: TLS in front of other services.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use hsmux_token::{Class, Uri};
use toml::de::{DeTable, DeValue};

use super::reader::{Fields, Named, Source, text};
use super::sections::{many, one, unique};

/// `[gateway]`: TLS with private keys in the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewaySection {
    /// Addresses that it listens on.
    pub listen: Vec<SocketAddr>,
    /// Where its metrics are read.
    pub metrics: Option<SocketAddr>,
    /// Whether each connection begins with a PROXY header.
    pub proxy_protocol: bool,
    /// Connections of all clients.
    pub connections: usize,
    /// Handshakes under way at once.
    pub handshakes: usize,
    /// How long a client may take for its handshake.
    pub handshake_timeout: Duration,
    /// How long a handshake may wait for its signature.
    pub sign_timeout: Duration,
    /// How long a client may take for the head of a request.
    pub idle_timeout: Duration,
    /// How long `/health` announces the end before connections are refused.
    pub leave_time: Duration,
    /// How long requests that run are waited for at the end.
    pub drain_timeout: Duration,
    /// What the keys of session tickets are made of; `None`: of nothing that another process has.
    pub ticket_secret: Option<Place>,
    /// How long a key seals new tickets; they are taken as long again.
    pub ticket_rotation: Duration,
    /// Each `[[site]]`.
    pub sites: Vec<Site>,
}

/// `[[site]]`: what is served under some names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Names in lower case, where a first label may be `*`; `*` alone is every other name and none.
    pub names: Vec<String>,
    /// At least one.
    pub certificates: Vec<Certificate>,
    /// What is behind it.
    pub behind: Behind,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// How long a backend may take to begin its answer.
    pub backend_timeout: Duration,
    /// Seconds of Strict-Transport-Security; 0: none.
    pub hsts: u64,
    /// Whether clients show certificates.
    pub clients: Option<Clients>,
    /// Whether RSA keys of less than 2048 bits are served.
    pub allow_rsa_1024: bool,
}

/// A certificate of a site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// The certificate, and in a file those that lead to its root.
    pub chain: Place,
    /// Its private key; `None`: the pool's key with the certificate's public half.
    pub key: Option<Place>,
    /// Its OCSP response, DER.
    pub ocsp: Option<PathBuf>,
}

/// Where a certificate or a key is.
#[derive(Clone, PartialEq, Eq, Debug)]
// A handful of them exist, in the configuration.
#[allow(clippy::large_enum_variant)]
pub enum Place {
    /// A PEM file.
    File(PathBuf),
    /// The pool.
    Pool(Uri),
}

/// What is behind a site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Behind {
    /// A service that speaks HTTP/1.1, by host and port.
    Http(String),
    /// A service that speaks anything, by host and port, and the PROXY header that it is sent.
    Tcp(String, Option<ProxyVersion>),
    /// A folder of files.
    Folder(PathBuf),
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// Whose certificates clients show.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clients {
    /// PEM: the roots.
    pub roots: PathBuf,
    /// Whether a client without one is refused.
    pub required: bool,
}

pub fn read(source: &mut Source<'_>, document: &DeTable<'_>) -> Option<GatewaySection> {
    let sites = many(source, document, "site", |fields| {
        Some((site(fields)?, fields.span_of("names")))
    });
    if !document.contains_key("gateway") {
        if let Some(site) = document.get("site") {
            source.error(site.span(), "[[site]] is for the gateway: add [gateway]");
        }
        return None;
    }
    let section = one(source, document, "gateway", gateway);
    if !document.contains_key("site") {
        let message = "no [[site]]: the gateway has nothing to serve";
        source.error(document["gateway"].span(), message);
    }
    let each = |(site, span): &(Site, Range<usize>)| -> Vec<_> {
        let place = |name: &String| (name.clone(), span.clone());
        site.names.iter().map(place).collect()
    };
    let names: Vec<_> = sites.iter().flat_map(each).collect();
    unique(source, &names, "name", Clone::clone);
    Some(GatewaySection {
        sites: sites.into_iter().map(|(site, _)| site).collect(),
        ..section
    })
}

fn gateway(fields: &mut Fields<'_, '_, '_>) -> GatewaySection {
    let address = |value: &DeValue<'_>| {
        let text = text(value)?;
        text.parse()
            .map_err(|_| format!("{text:?} is not an address and a port"))
    };
    let listen: Option<Vec<SocketAddr>> = fields.list("listen", address);
    if listen.as_ref().is_none_or(Vec::is_empty) {
        fields.missing("listen");
    }
    let seconds = |fields: &mut Fields<'_, '_, '_>, name, seconds| {
        let own = fields.duration(name);
        own.unwrap_or(Duration::from_secs(seconds))
    };
    let number = |fields: &mut Fields<'_, '_, '_>, name, or| {
        let number = fields.number(name, 16..=1_000_000);
        number.map_or(or, |number| number as usize)
    };
    GatewaySection {
        connections: number(fields, "connections", 50_000),
        handshakes: number(fields, "handshakes", 16_384),
        listen: listen.unwrap_or_default(),
        metrics: fields.read("metrics", address),
        proxy_protocol: fields.flag("proxy_protocol").unwrap_or(false),
        handshake_timeout: seconds(fields, "handshake_timeout", 10),
        sign_timeout: seconds(fields, "sign_timeout", 30),
        idle_timeout: seconds(fields, "idle_timeout", 60),
        leave_time: seconds(fields, "leave_time", 0),
        drain_timeout: seconds(fields, "drain_timeout", 10),
        ticket_secret: place(fields, "ticket_secret", Class::SECRET_KEY),
        ticket_rotation: rotation(fields),
        sites: Vec::new(),
    }
}

/// Not so short that hosts whose clocks differ a little have no key in common, nor so long that a key that
/// got out is worth much.
fn rotation(fields: &mut Fields<'_, '_, '_>) -> Duration {
    let given = fields.duration("ticket_rotation");
    let range = Duration::from_secs(60)..=Duration::from_secs(7 * 24 * 3600);
    if given.is_some_and(|given| !range.contains(&given)) {
        let message = "ticket_rotation: from one minute to seven days";
        fields
            .source
            .error(fields.span_of("ticket_rotation"), message);
    }
    given.unwrap_or(Duration::from_secs(12 * 3600))
}

fn site(fields: &mut Fields<'_, '_, '_>) -> Option<Site> {
    let names = fields.list("names", |value| name(text(value)?));
    let certificates = certificates(fields);
    let behind = behind(fields);
    let client_words = [("required", true), ("optional", false)];
    let required = fields.choice("client_certificate", &client_words);
    let roots = file(fields, "client_ca");
    if required.is_some() && roots.is_none() {
        let message =
            "client_certificate says whether those of client_ca are required: give client_ca";
        let span = fields.span_of("client_certificate");
        fields.source.error(span, message);
    }
    let site = Site {
        names: names.unwrap_or_else(|| vec!["*".into()]),
        certificates: Vec::new(),
        behind: Behind::Folder(PathBuf::new()),
        http2: fields.flag("http2").unwrap_or(true),
        backend_timeout: fields
            .duration("backend_timeout")
            .unwrap_or(Duration::from_secs(30)),
        hsts: fields
            .number("hsts", 0..=u64::from(u32::MAX))
            .unwrap_or(31_536_000),
        clients: roots.map(|roots| Clients {
            roots,
            required: required.unwrap_or(true),
        }),
        allow_rsa_1024: fields.flag("allow_rsa_1024").unwrap_or(false),
    };
    Some(Site {
        certificates: certificates?,
        behind: behind?,
        ..site
    })
}

/// A host name with ASCII characters, or with `*` as its first label, or `*`.
fn name(name: &str) -> Result<String, String> {
    let lower = name.to_ascii_lowercase();
    let labels = lower.strip_prefix("*.").unwrap_or(&lower);
    let good = |label: &str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.len() <= 63 && label.bytes().all(letter)
    };
    if lower == "*" || labels.split('.').all(good) {
        return Ok(lower);
    }
    Err(format!(
        "{name:?} is not a host name; names beyond ASCII are written as xn--..."
    ))
}

fn certificates(fields: &mut Fields<'_, '_, '_>) -> Option<Vec<Certificate>> {
    if !fields.has("certificates") {
        fields.missing("certificates");
    }
    let chains = places(fields, "certificates", Class::CERTIFICATE);
    let keys = places(fields, "keys", Class::PRIVATE_KEY);
    let ocsp = paths(fields, "ocsp");
    let chains = chains?;
    if chains.is_empty() {
        fields.missing("certificates");
    }
    let lengths = [
        ("keys", keys.as_ref().map(Vec::len)),
        ("ocsp", ocsp.as_ref().map(Vec::len)),
    ];
    for (name, length) in lengths {
        if length.is_some_and(|length| length != chains.len()) {
            let message = format!("{name}: one for each of certificates, in their order");
            fields.source.error(fields.span_of(name), message);
        }
    }
    let (mut keys, mut ocsp) = (keys.into_iter().flatten(), ocsp.into_iter().flatten());
    let certificates = chains.into_iter().map(|chain| Certificate {
        chain,
        key: keys.next(),
        ocsp: ocsp.next(),
    });
    Some(certificates.collect())
}

/// Files and objects of the pool.
fn places(fields: &mut Fields<'_, '_, '_>, name: &str, class: Class) -> Option<Vec<Place>> {
    let read = fields.list(name, |value| file_or_uri(text(value)?, class))?;
    let placed = read.into_iter().map(|read| found(fields, name, read));
    Some(placed.collect())
}

/// A file or an object of the pool.
fn place(fields: &mut Fields<'_, '_, '_>, name: &str, class: Class) -> Option<Place> {
    let read = fields.read(name, |value| file_or_uri(text(value)?, class))?;
    Some(found(fields, name, read))
}

/// A file's path as it is written, or an object of the pool.
fn file_or_uri(text: &str, class: Class) -> Result<Result<Uri, String>, String> {
    if !text.starts_with("pkcs11:") {
        return Ok(Err(text.to_owned()));
    }
    let uri: Uri = text
        .parse()
        .map_err(|e: hsmux_token::UriError| e.to_string())?;
    if uri.names_token() {
        return Err("the pool is one token: name the object, by object= or id=".into());
    }
    if uri.object.is_none() && uri.id.is_none() {
        return Err(format!("{text} names no object: give object= or id="));
    }
    Ok(Ok(Uri {
        class: Some(class),
        ..uri
    }))
}

fn found(fields: &mut Fields<'_, '_, '_>, name: &str, read: Result<Uri, String>) -> Place {
    match read {
        Ok(uri) => Place::Pool(uri),
        Err(path) => {
            let path = fields.source.path(&path);
            fields.names(name, Named::File(path.clone()));
            Place::File(path)
        }
    }
}

fn file(fields: &mut Fields<'_, '_, '_>, name: &str) -> Option<PathBuf> {
    let path = fields.path(name)?;
    fields.names(name, Named::File(path.clone()));
    Some(path)
}

fn paths(fields: &mut Fields<'_, '_, '_>, name: &str) -> Option<Vec<PathBuf>> {
    let read = fields.list(name, |value| Ok(text(value)?.to_owned()))?;
    let source = &*fields.source;
    Some(read.iter().map(|path| source.path(path)).collect())
}

fn behind(fields: &mut Fields<'_, '_, '_>) -> Option<Behind> {
    let versions = [("v1", ProxyVersion::V1), ("v2", ProxyVersion::V2)];
    let send_proxy = fields.choice("send_proxy", &versions);
    let backend = fields.read("backend", |value| backend(text(value)?));
    let root = fields.path("root");
    if fields.has("backend") == fields.has("root") {
        let message = "[[site]] needs one of backend = \"http://HOST:PORT\" and root = \"FOLDER\"";
        fields.source.error(fields.span.clone(), message);
        return None;
    }
    let behind = match (backend, root) {
        (Some(Behind::Tcp(at, _)), _) => Behind::Tcp(at, send_proxy),
        (Some(backend), _) => backend,
        (None, root) => Behind::Folder(root?),
    };
    if send_proxy.is_some() && !matches!(behind, Behind::Tcp(..)) {
        let message =
            "send_proxy is for a tcp:// backend; one of http:// is told by X-Forwarded-For";
        fields.source.error(fields.span_of("send_proxy"), message);
    }
    Some(behind)
}

fn backend(url: &str) -> Result<Behind, String> {
    let wrong = || format!("{url:?} is neither http://HOST:PORT nor tcp://HOST:PORT");
    let (scheme, at) = url.split_once("://").ok_or_else(wrong)?;
    let at = at.strip_suffix('/').unwrap_or(at);
    let (host, port) = at.rsplit_once(':').ok_or_else(wrong)?;
    if host.is_empty() || host.contains(['/', '@', '?', '#']) || port.parse::<u16>().is_err() {
        return Err(wrong());
    }
    match scheme {
        "http" => Ok(Behind::Http(at.to_owned())),
        "tcp" => Ok(Behind::Tcp(at.to_owned(), None)),
        _ => Err(wrong()),
    }
}
