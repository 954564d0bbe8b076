//! The PROXY protocol, versions 1 and 2: the client's address behind a proxy that passes TLS on.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Once;

use hsmux_config::{GatewaySection, ProxyVersion};
use ppp::{HeaderResult, v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::metrics::RefusalReason;

/// The first bytes of version 2 (specification, section 2.2).
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The longest header of version 1 (section 2.1).
const LONGEST: usize = 107;

/// Logged once: strangers cannot fill the log.
static TOLD: Once = Once::new();

/// The client's address: with `proxy_protocol`, the one in the header.
pub async fn client(
    section: &GatewaySection,
    stream: &mut (impl AsyncRead + Unpin),
    from: SocketAddr,
) -> Result<SocketAddr, RefusalReason> {
    if !section.proxy_protocol {
        return Ok(from);
    }
    let mut trusted = section.proxy_from.iter();
    if !trusted.any(|network| network.contains(from.ip())) {
        TOLD.call_once(|| {
            tracing::warn!(
                "a connection from {} was refused: PROXY headers are accepted from [gateway] proxy_from alone; add its \
                 address there if it is a proxy",
                from.ip()
            );
        });
        return Err(RefusalReason::ProxyFrom);
    }
    let named = read(stream).await;
    Ok(named.map_err(|_| RefusalReason::Proxy)?.unwrap_or(from))
}

/// Reads a header and not a byte more. `None`: the proxy connects for itself, as for a health check.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let mut header = vec![0; SIGNATURE.len()];
    stream.read_exact(&mut header).await?;
    if header == SIGNATURE {
        header.resize(16, 0);
        stream.read_exact(&mut header[12..]).await?;
        let rest = u16::from_be_bytes([header[14], header[15]]);
        header.resize(16 + usize::from(rest), 0);
        stream.read_exact(&mut header[16..]).await?;
    } else {
        while header.last() != Some(&b'\n') {
            if header.len() >= LONGEST || !header.starts_with(b"PROXY ") {
                return Err(no_header());
            }
            header.push(stream.read_u8().await?);
        }
    }
    let named: Option<SocketAddr> = match HeaderResult::parse(&header) {
        HeaderResult::V1(Ok(header)) => match header.addresses {
            v1::Addresses::Tcp4(of) => Some((of.source_address, of.source_port).into()),
            v1::Addresses::Tcp6(of) => Some((of.source_address, of.source_port).into()),
            v1::Addresses::Unknown => None,
        },
        HeaderResult::V2(Ok(header)) => match header.addresses {
            _ if header.command == v2::Command::Local => None,
            v2::Addresses::IPv4(of) => Some((of.source_address, of.source_port).into()),
            v2::Addresses::IPv6(of) => Some((of.source_address, of.source_port).into()),
            v2::Addresses::Unspecified | v2::Addresses::Unix(_) => None,
        },
        _ => return Err(no_header()),
    };
    Ok(named.map(plain))
}

/// Converts an IPv4 address within IPv6 to IPv4.
fn plain(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

/// A header for a client that has connected to `server`.
pub fn write(version: ProxyVersion, client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let (client, server) = same_family(client, server);
    match version {
        ProxyVersion::V1 => {
            let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
            let (from, to) = (client.ip(), server.ip());
            let (from_port, to_port) = (client.port(), server.port());
            format!("PROXY {family} {from} {to} {from_port} {to_port}\r\n").into_bytes()
        }
        ProxyVersion::V2 => {
            let command = v2::Version::Two | v2::Command::Proxy;
            let addresses: v2::Addresses = (client, server).into();
            let header = v2::Builder::with_addresses(command, v2::Protocol::Stream, addresses);
            // Fails only for headers of more than 64 kB.
            header.build().unwrap_or_default()
        }
    }
}

/// Both as IPv4 if possible, else both as IPv6.
fn same_family(one: SocketAddr, other: SocketAddr) -> (SocketAddr, SocketAddr) {
    let (one, other) = (plain(one), plain(other));
    if one.is_ipv4() == other.is_ipv4() {
        return (one, other);
    }
    let wide = |at: SocketAddr| match at.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), at.port()),
        IpAddr::V6(_) => at,
    };
    (wide(one), wide(other))
}

fn no_header() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no PROXY header")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_back(bytes: &[u8]) -> io::Result<(Option<SocketAddr>, usize)> {
        let mut rest = bytes;
        let address = read(&mut rest).await?;
        Ok((address, rest.len()))
    }

    #[tokio::test]
    async fn both_versions_are_read_back_without_the_bytes_after_them() {
        let pairs = [
            ("1.2.3.4:5", "6.7.8.9:443"),
            ("[2001:db8::1]:5", "6.7.8.9:443"),
        ];
        for (client, server) in pairs {
            let (client, server) = (client.parse().unwrap(), server.parse().unwrap());
            for version in [ProxyVersion::V1, ProxyVersion::V2] {
                let mut bytes = write(version, client, server);
                bytes.extend(b"hello");
                assert_eq!(read_back(&bytes).await.unwrap(), (Some(client), 5));
            }
        }
        let within = read_back(b"PROXY TCP6 ::ffff:1.2.3.4 ::1 5 443\r\nhello").await;
        assert_eq!(within.unwrap(), ("1.2.3.4:5".parse().ok(), 5));
        let unknown = read_back(b"PROXY UNKNOWN\r\nhello").await.unwrap();
        assert_eq!(unknown, (None, 5));
    }

    #[tokio::test]
    async fn invalid_headers_are_refused() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"PROXY nonsense here\r\n",
            &SIGNATURE,
            &[22; 200],
        ] {
            assert!(read_back(bytes).await.is_err(), "{bytes:?}");
        }
        let endless = [&b"PROXY "[..], &[b'a'; 200]].concat();
        assert!(read_back(&endless).await.is_err());
    }
}
