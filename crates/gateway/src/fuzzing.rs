//! Entry points for fuzz targets: parsers that run before a site is chosen.

use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use hsmux_config::ProxyVersion;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Uri, Version};

use crate::http::{HTTP, HTTPS, Host};
use crate::proxy_header;

/// Parses a PROXY header: the client's address, and the length of the header.
pub fn proxy(bytes: &[u8]) -> Option<(Option<SocketAddr>, usize)> {
    let mut rest = bytes;
    let address = {
        let read = pin!(proxy_header::read(&mut rest));
        let Poll::Ready(read) = read.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("bytes in memory were waited for");
        };
        read.ok()?
    };
    Some((address, bytes.len() - rest.len()))
}

/// Writes PROXY headers of both versions for this client.
pub fn write_proxy(client: SocketAddr) -> [Vec<u8>; 2] {
    [ProxyVersion::V1, ProxyVersion::V2].map(|version| proxy_header::write(version, client, client))
}

/// Parses a request's host. The first line of `bytes` is the authority, the others are Host fields.
pub fn host(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let authority = lines.next().unwrap_or_default();
    let mut request = Request::new(());
    if let Ok(uri) = Uri::try_from(authority) {
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
    }
    for value in lines
        .take(4)
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
    {
        request.headers_mut().append(HOST, value);
    }
    for usual in [HTTP, HTTPS] {
        let Ok(host) = Host::of(&request, usual) else {
            continue;
        };
        // The canonical form means the same host.
        let mut again = Request::new(());
        let canonical = HeaderValue::from_str(&host.to_string()).expect("a host is text");
        again.headers_mut().insert(HOST, canonical);
        assert_eq!(Host::of(&again, usual).as_ref(), Ok(&host));
    }
}
