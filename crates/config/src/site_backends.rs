//! Back ends of a site: servers by their URLs, or a folder of files.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::backend_check::{Check, check};
use super::reader::{ExternalReference, Fields, text};

/// The back ends of a site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SiteBackends {
    /// HTTP servers, the PEM roots of their certificates (`None`: the system's), and their health check.
    Http(Vec<BackendUrl>, Option<PathBuf>, Option<Check>),
    /// Servers of any protocol, and the PROXY header that they are sent.
    Tcp(Vec<BackendUrl>, Option<ProxyVersion>),
    /// A folder of files.
    Folder(PathBuf),
}

/// A server, by its URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackendUrl {
    /// Its protocol.
    pub scheme: Scheme,
    /// Its name or address; an IPv6 address has no brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// The protocol of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// HTTP/1.1 in clear.
    Http,
    /// HTTP/1.1 in TLS.
    Https,
    /// HTTP/2 in clear, from the first byte (RFC 9113, section 3.3).
    H2c,
    /// HTTP/2 in TLS.
    H2,
    /// Anything.
    Tcp,
}

impl Scheme {
    /// Whether it is HTTP/2.
    pub fn is_http2(self) -> bool {
        matches!(self, Self::H2c | Self::H2)
    }

    /// Whether it is in TLS.
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::H2)
    }
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

impl SiteBackends {
    /// Its servers.
    pub fn urls(&self) -> &[BackendUrl] {
        match self {
            Self::Http(backends, ..) | Self::Tcp(backends, _) => backends,
            Self::Folder(_) => &[],
        }
    }

    /// The roots of their certificates.
    pub fn roots(&self) -> Option<&Path> {
        match self {
            Self::Http(_, roots, _) => roots.as_deref(),
            _ => None,
        }
    }

    /// Whether they speak HTTP/2. Either all or none of them do.
    pub fn is_http2(&self) -> bool {
        let first = self.urls().first();
        first.is_some_and(|backend| backend.scheme.is_http2())
    }

    /// Their health check.
    pub fn check(&self) -> Option<&Check> {
        match self {
            Self::Http(_, _, check) => check.as_ref(),
            _ => None,
        }
    }
}

impl BackendUrl {
    /// `HOST:PORT`
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

impl fmt::Display for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::H2c => "h2c",
            Scheme::H2 => "h2",
            Scheme::Tcp => "tcp",
        };
        write!(f, "{scheme}://{}", self.authority())
    }
}

pub(super) fn site_backends(fields: &mut Fields<'_, '_, '_>) -> Option<SiteBackends> {
    let versions = [("v1", ProxyVersion::V1), ("v2", ProxyVersion::V2)];
    let send_proxy = fields.choice("send_proxy", &versions);
    let roots = fields.trust_file("gateway", "backend_ca");
    let check = check(fields);
    let backends = fields.read("backend", backends);
    let root = fields.path("root");
    if let Some(root) = &root {
        fields.names("root", ExternalReference::Served(root.clone()));
    }
    if fields.has("backend") == fields.has("root") {
        let message = "[[site]] needs one of backend = \"http://HOST:PORT\" and root = \"FOLDER\"";
        fields.source.error(fields.span.clone(), message);
        return None;
    }
    if fields.has("backend") && backends.is_none() {
        return None;
    }
    let any = |such: fn(Scheme) -> bool| {
        let mut all = backends.iter().flatten();
        all.any(|backend| such(backend.scheme))
    };
    let is_tcp = any(|scheme| scheme == Scheme::Tcp);
    if send_proxy.is_some() && !is_tcp {
        let message = "send_proxy is for a tcp:// backend; one of http is told by X-Forwarded-For";
        fields.source.error(fields.span_of("send_proxy"), message);
    }
    if roots.is_some() && !any(Scheme::is_tls) {
        let message = "backend_ca is for an https:// or h2:// backend: no other has a certificate";
        fields.source.error(fields.span_of("backend_ca"), message);
    }
    if check.is_some() && (is_tcp || backends.is_none()) {
        let message = "backend_check asks over HTTP: it is for no tcp:// backend and no folder";
        fields
            .source
            .error(fields.span_of("backend_check"), message);
    }
    Some(match backends {
        None => SiteBackends::Folder(root?),
        Some(backends) if is_tcp => SiteBackends::Tcp(backends, send_proxy),
        Some(backends) => SiteBackends::Http(backends, roots, check),
    })
}

/// A single value or a list.
fn backends(value: &DeValue<'_>) -> Result<Vec<BackendUrl>, String> {
    let Some(list) = value.as_array() else {
        return Ok(vec![backend(text(value)?)?]);
    };
    let mut all = Vec::new();
    for url in list {
        let next = backend(text(url.get_ref())?)?;
        if all.contains(&next) {
            return Err(format!("{next} stands there twice"));
        }
        all.push(next);
    }
    let protocol = |one: &BackendUrl| (one.scheme == Scheme::Tcp, one.scheme.is_http2());
    match all.split_first() {
        None => Err("the list is empty".into()),
        Some((first, others)) if others.iter().all(|it| protocol(it) == protocol(first)) => Ok(all),
        Some(_) => Err("backends of tcp://, of http:// and https://, and of h2c:// and h2:// cannot take turns".into()),
    }
}

/// `http://HOST:PORT`, `https://HOST[:PORT]`, `h2c://HOST:PORT`, `h2://HOST[:PORT]` or `tcp://HOST:PORT`.
pub(super) fn backend(url: &str) -> Result<BackendUrl, String> {
    let wrong = || {
        format!(
            "{url:?} is none of http://HOST:PORT, https://HOST[:PORT], h2c://HOST:PORT, h2://HOST[:PORT] and \
             tcp://HOST:PORT"
        )
    };
    let (scheme, at) = url.split_once("://").ok_or_else(wrong)?;
    let (scheme, usual) = match scheme {
        "http" => (Scheme::Http, None),
        "https" => (Scheme::Https, Some(443)),
        "h2c" => (Scheme::H2c, None),
        "h2" => (Scheme::H2, Some(443)),
        "tcp" => (Scheme::Tcp, None),
        _ => return Err(wrong()),
    };
    let at = at.strip_suffix('/').unwrap_or(at);
    let (host, port) = match at.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
        _ => (at, usual),
    };
    let host = host_of(host).ok_or_else(wrong)?;
    Ok(BackendUrl {
        scheme,
        host: host.to_owned(),
        port: port.ok_or_else(wrong)?,
    })
}

fn host_of(text: &str) -> Option<&str> {
    if let Some(address) = text.strip_prefix('[') {
        let address = address.strip_suffix(']')?;
        return address.parse::<Ipv6Addr>().is_ok().then_some(address);
    }
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (!text.is_empty() && text.bytes().all(good)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_backends_are_told_apart_from_others() {
        for (url, shown) in [
            ("http://a.example:8080/", "http://a.example:8080"),
            ("https://a.example", "https://a.example:443"),
            ("https://[::1]", "https://[::1]:443"),
            ("h2://a.example/", "h2://a.example:443"),
            ("h2c://a.example:50051", "h2c://a.example:50051"),
            ("tcp://[::1]:5432", "tcp://[::1]:5432"),
        ] {
            assert_eq!(backend(url).unwrap().to_string(), shown);
        }
        for wrong in [
            "http://a.example",
            "h2c://a.example",
            "a.example:80",
            "ftp://a.example:21",
            "http://a.example:80/path",
            "https://user@a.example",
            "https://",
            "https://a.example:",
            "https://[::1",
            "tcp://::1",
            "http://a.example:99999",
        ] {
            assert!(backend(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn backends_that_take_turns_speak_the_same() {
        let list = |text: &str| {
            let document = toml::de::DeTable::parse(text).unwrap();
            backends(document.get_ref()["it"].get_ref())
        };
        for good in [
            "it = ['http://a:1', 'https://b']",
            "it = ['h2c://a:1', 'h2://b']",
            "it = ['tcp://a:1', 'tcp://b:1']",
            "it = 'h2c://a:1'",
        ] {
            assert!(list(good).is_ok(), "{good}");
        }
        for wrong in [
            "it = ['http://a:1', 'h2c://a:1']",
            "it = ['h2://a', 'tcp://a:1']",
            "it = ['tcp://a:1', 'https://a']",
            "it = []",
        ] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
    }
}
