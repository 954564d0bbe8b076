//! A page, its site, and the addresses of the site.

use std::net::{SocketAddr, ToSocketAddrs};

use fluent_uri::{Uri, UriRef};
use hsmux_token::{Error, Kind, Result};

/// A page and its site.
pub struct Site {
    url: Uri<String>,
    /// The host's name or address; an IPv6 address has no brackets.
    pub host: String,
    /// The port of the URL.
    pub port: u16,
    /// The addresses of connections.
    pub addresses: Vec<SocketAddr>,
}

impl Site {
    /// Parses an `https` URL; `connect` replaces its host and port for connections.
    pub fn new(url: &str, connect: Option<&str>) -> Result<Self> {
        let wrong = |why: &str| {
            let message =
                format!("{url}: {why}; write https://HOST/PATH or https://HOST:PORT/PATH");
            Error::request(Kind::Invalid, message)
        };
        let uri = Uri::parse(url).map_err(|_| wrong("no URL"))?;
        // A fragment is not sent.
        let uri = uri.strip_fragment().to_owned();
        if uri.scheme().as_str() != "https" {
            return Err(wrong("not https"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("no host in it"))?;
        if authority.userinfo().is_some() {
            return Err(wrong("a user's name in it, which is not sent"));
        }
        let port = authority.port_to_u16().map_err(|_| wrong("no port"))?;
        let port = port.unwrap_or(443);
        let host = bare(authority.host()).to_owned();
        if host.is_empty() {
            return Err(wrong("no host in it"));
        }
        let (to, at) = match connect {
            Some(place) => place_of(place, port)?,
            None => (host.clone(), port),
        };
        let unknown = |why: &dyn std::fmt::Display| {
            Error::pool(Kind::Environment, format!("{to}: no address: {why}"))
        };
        let found = (to.as_str(), at).to_socket_addrs();
        let addresses: Vec<_> = found.map_err(|e| unknown(&e))?.collect();
        if addresses.is_empty() {
            return Err(unknown(&"nobody knows one"));
        }
        Ok(Self {
            host,
            port,
            addresses,
            url: uri,
        })
    }

    /// The Host header.
    pub fn authority(&self) -> &str {
        self.url
            .authority()
            .map_or("", |authority| authority.as_str())
    }

    /// Path and query of the page.
    pub fn target(&self) -> String {
        target_of(&self.url)
    }

    /// Path and query of a reference on a page at `target`; `None` if it is on another site.
    pub fn same_site(&self, target: &str, reference: &str) -> Option<String> {
        let page = UriRef::parse(target)
            .ok()?
            .resolve_against(&self.url)
            .ok()?;
        let reference = UriRef::parse(reference.trim()).ok()?;
        let found = reference.resolve_against(&page).ok()?;
        let same = found.scheme() == self.url.scheme() && self.is_own(&found);
        same.then(|| target_of(&found))
    }

    fn is_own(&self, url: &Uri<String>) -> bool {
        url.authority().is_some_and(|authority| {
            let port = authority.port_to_u16().ok().flatten().unwrap_or(443);
            bare(authority.host()).eq_ignore_ascii_case(&self.host) && port == self.port
        })
    }
}

/// `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
fn place_of(place: &str, usual: u16) -> Result<(String, u16)> {
    let address = bare(place).parse::<std::net::IpAddr>().is_ok();
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !address => (host, port.parse().ok()),
        _ => (place, Some(usual)),
    };
    match port {
        Some(port) if !host.is_empty() => Ok((bare(host).to_owned(), port)),
        _ => Err(Error::request(
            Kind::Invalid,
            format!("{place:?} is neither HOST nor HOST:PORT"),
        )),
    }
}

/// Without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

fn target_of(url: &Uri<String>) -> String {
    let path = match url.path().as_str() {
        "" => "/",
        path => path,
    };
    match url.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_or_refused() {
        let site = Site::new("https://[::1]:8443/a/b.html?c=d#e", None).unwrap();
        assert_eq!((&*site.host, site.port), ("::1", 8443));
        assert_eq!(
            (site.authority(), &*site.target()),
            ("[::1]:8443", "/a/b.html?c=d")
        );
        let site = Site::new("https://www.example.test", Some("127.0.0.1:99")).unwrap();
        assert_eq!(site.addresses, ["127.0.0.1:99".parse().unwrap()]);
        assert_eq!(site.target(), "/");
        let site = Site::new("https://www.example.test", Some("::1")).unwrap();
        assert_eq!(site.addresses, ["[::1]:443".parse().unwrap()]);
        for (url, why) in [
            ("http://keys.test/", "not https"),
            ("keys.test", "no URL"),
            ("https://me@keys.test/", "user's name"),
            ("https:///page", "no host"),
            ("https://keys.test:99999/", "no port"),
        ] {
            let error = Site::new(url, None).err().unwrap().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
        let error = Site::new("https://a.test/", Some("b.test:x"))
            .err()
            .unwrap();
        assert!(error.to_string().contains("neither HOST"), "{error}");
    }

    #[test]
    fn only_what_is_on_the_same_site_is_followed() {
        let site = Site::new("https://127.0.0.1:8443/blog/index.html", None).unwrap();
        let of = |reference| site.same_site("/blog/a/page.html?x=1", reference);
        for (reference, target) in [
            ("style.css", "/blog/a/style.css"),
            ("../b/x.js?v=2#top", "/blog/b/x.js?v=2"),
            ("/logo.png", "/logo.png"),
            ("//127.0.0.1:8443/c", "/c"),
            ("https://127.0.0.1:8443", "/"),
        ] {
            assert_eq!(of(reference).as_deref(), Some(target), "{reference}");
        }
        for other in [
            "https://127.0.0.1/c",
            "http://127.0.0.1:8443/c",
            "https://cdn.test:8443/c",
            "data:image/png;base64,AAAA",
            "a b",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
