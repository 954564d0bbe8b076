//! Each `[[site]]`: names that the gateway serves.

use std::path::PathBuf;
use std::time::Duration;

use hsmux_token::permissions::SecretReaders;
use hsmux_token::{Class, Uri};

use super::acme::{Acme, acme};
use super::reader::{ExternalReference, Fields, text};
use super::site_backends::{SiteBackends, site_backends};

/// `[[site]]`: names with their certificates and back ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Names in lower case; the first label may be `*`. `*` alone matches all other names, and clients that send none.
    pub names: Vec<String>,
    /// Its certificates, at least one.
    pub certificates: Vec<Certificate>,
    /// Its back ends.
    pub backends: SiteBackends,
    /// Where ACME's challenges for its names are answered; `None`: as in `[gateway]`.
    pub acme: Option<Acme>,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// Protocols to which an HTTP/1.1 connection may be upgraded.
    pub upgrades: Vec<String>,
    /// How long a back end may take to begin its answer.
    pub backend_timeout: Duration,
    /// Seconds of Strict-Transport-Security; 0: the header is not sent.
    pub hsts: u64,
    /// Client certificates, if they are requested.
    pub clients: Option<Clients>,
    /// Whether RSA keys of less than 2048 bits are permitted.
    pub allow_rsa_1024: bool,
}

/// A certificate of a site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// The certificate; a file also has its chain.
    pub chain: ObjectSource,
    /// Its private key; `None`: the pool's key with the certificate's public key.
    pub key: Option<ObjectSource>,
    /// Its OCSP response, DER.
    pub ocsp: Option<PathBuf>,
}

/// The source of a certificate or key.
#[derive(Clone, PartialEq, Eq, Debug)]
// Few exist, in the configuration only.
#[allow(clippy::large_enum_variant)]
pub enum ObjectSource {
    /// A PEM file.
    File(PathBuf),
    /// The pool.
    Pool(Uri),
}

/// Verification of client certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clients {
    /// PEM: the roots.
    pub roots: PathBuf,
    /// PEM or DER: revocation lists; empty: revocation is not checked.
    pub lists: Vec<PathBuf>,
    /// Whether a client without a certificate is refused.
    pub required: bool,
}

/// Reads a site; `awaited`: its certificates may come later.
pub fn site(fields: &mut Fields<'_, '_, '_>, awaited: bool) -> Option<Site> {
    let names = fields.list("names", |value| name(text(value)?));
    let acme = acme(fields);
    let certificates = certificates(fields, awaited || acme.is_some());
    let backends = site_backends(fields);
    let client_words = [("required", true), ("optional", false)];
    let required = fields.choice("client_certificate", &client_words);
    let roots = fields.trust_file("gateway", "client_ca");
    let lists = revocation_lists(fields, "gateway", roots.is_some());
    if required.is_some() && roots.is_none() {
        let message =
            "client_certificate says whether those of client_ca are required: give client_ca";
        let span = fields.span_of("client_certificate");
        fields.source.error(span, message);
    }
    let upgrades = fields.list("upgrades", |value| protocol(text(value)?));
    if upgrades.is_some() && !matches!(backends, None | Some(SiteBackends::Http(..))) {
        let message = "upgrades is for a backend that speaks HTTP: nothing else is asked for another protocol";
        fields.source.error(fields.span_of("upgrades"), message);
    }
    let site = Site {
        names: names.unwrap_or_else(|| vec!["*".into()]),
        certificates: Vec::new(),
        backends: SiteBackends::Folder(PathBuf::new()),
        acme,
        http2: fields.flag("http2").unwrap_or(true),
        upgrades: upgrades.unwrap_or_else(|| vec!["websocket".to_owned()]),
        backend_timeout: fields
            .duration("backend_timeout")
            .unwrap_or(Duration::from_secs(30)),
        hsts: fields
            .number("hsts", 0..=u64::from(u32::MAX))
            .unwrap_or(31_536_000),
        clients: roots.map(|roots| Clients {
            roots,
            lists,
            required: required.unwrap_or(true),
        }),
        allow_rsa_1024: fields.flag("allow_rsa_1024").unwrap_or(false),
    };
    Some(Site {
        certificates: certificates?,
        backends: backends?,
        ..site
    })
}

/// The files of `client_crl`, one or a list of them.
pub(super) fn revocation_lists(
    fields: &mut Fields<'_, '_, '_>,
    service: &'static str,
    has_ca: bool,
) -> Vec<PathBuf> {
    if fields.has("client_crl") && !has_ca {
        let message = "client_crl says which certificates of client_ca are revoked: give client_ca";
        fields.source.error(fields.span_of("client_crl"), message);
    }
    let read = fields.read("client_crl", |value| match value.as_array() {
        None => Ok(vec![text(value)?.to_owned()]),
        Some(list) if list.is_empty() => Err("the list is empty".into()),
        Some(list) => list
            .iter()
            .map(|one| Ok(text(one.get_ref())?.to_owned()))
            .collect(),
    });
    let files: Vec<_> = read
        .iter()
        .flatten()
        .map(|path| fields.source.path(path))
        .collect();
    for file in &files {
        fields.names(
            "client_crl",
            ExternalReference::Trust(service, file.clone()),
        );
    }
    files
}

/// Checks a host name of ASCII characters; its first label, or the whole, may be `*`.
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

/// Checks the name of a protocol (RFC 9110, section 7.8), with an optional version.
fn protocol(name: &str) -> Result<String, String> {
    let lower = name.to_ascii_lowercase();
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let good = |part: &str| !part.is_empty() && part.bytes().all(letter);
    if lower.split('/').count() > 2 || !lower.split('/').all(good) {
        return Err(format!("{name:?} is not the name of a protocol"));
    }
    if lower == "h2c" || lower.starts_with("http/") {
        return Err(format!(
            "{name:?} would carry requests that nobody checks to the backend; use backend = \"h2c://HOST:PORT\""
        ));
    }
    Ok(lower)
}

fn certificates(fields: &mut Fields<'_, '_, '_>, awaited: bool) -> Option<Vec<Certificate>> {
    if !fields.has("certificates") {
        fields.missing("certificates");
    }
    let named = if awaited {
        ExternalReference::Awaited
    } else {
        ExternalReference::File
    };
    let chains = object_sources(fields, "certificates", Class::CERTIFICATE, |_, file| {
        named(file)
    });
    // A key or OCSP response of a certificate that comes later is read together with it.
    let beside = |at: usize, named: ExternalReference| match chains.iter().flatten().nth(at) {
        Some(ObjectSource::File(chain)) if awaited => {
            ExternalReference::Beside(Box::new(named), chain.clone())
        }
        _ => named,
    };
    let keys = object_sources(fields, "keys", Class::PRIVATE_KEY, |at, file| {
        beside(
            at,
            ExternalReference::Secret(file, SecretReaders::Group, None),
        )
    });
    let ocsp = paths(fields, "ocsp", |at, file| {
        beside(at, ExternalReference::File(file))
    });
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

/// Reads files and objects of the pool; `named` gets the index of each, from 0.
fn object_sources(
    fields: &mut Fields<'_, '_, '_>,
    name: &str,
    class: Class,
    named: impl Fn(usize, PathBuf) -> ExternalReference,
) -> Option<Vec<ObjectSource>> {
    let read = fields.list(name, |value| file_or_uri(text(value)?, class))?;
    let each = read.into_iter().enumerate();
    let placed = each.map(|(at, read)| found(fields, name, read, |file| named(at, file)));
    Some(placed.collect())
}

/// Reads a file with a secret, or an object of the pool.
pub fn object_source(
    fields: &mut Fields<'_, '_, '_>,
    name: &str,
    class: Class,
) -> Option<ObjectSource> {
    let read = fields.read(name, |value| file_or_uri(text(value)?, class))?;
    let secret = |file| ExternalReference::Secret(file, SecretReaders::Owner, None);
    Some(found(fields, name, read, secret))
}

/// The unresolved path of a file, or an object of the pool.
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

fn found(
    fields: &mut Fields<'_, '_, '_>,
    name: &str,
    read: Result<Uri, String>,
    named: impl FnOnce(PathBuf) -> ExternalReference,
) -> ObjectSource {
    match read {
        Ok(uri) => ObjectSource::Pool(uri),
        Err(path) => {
            let path = fields.source.path(&path);
            fields.names(name, named(path.clone()));
            ObjectSource::File(path)
        }
    }
}

/// Reads files, as [`object_sources`].
fn paths(
    fields: &mut Fields<'_, '_, '_>,
    name: &str,
    named: impl Fn(usize, PathBuf) -> ExternalReference,
) -> Option<Vec<PathBuf>> {
    let read = fields.list(name, |value| Ok(text(value)?.to_owned()))?;
    let source = &*fields.source;
    let paths: Vec<_> = read.iter().map(|path| source.path(path)).collect();
    for (at, path) in paths.iter().enumerate() {
        fields.names(name, named(at, path.clone()));
    }
    Some(paths)
}
