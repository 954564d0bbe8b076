//! Addresses on the command line: `HOST[:PORT][/HEALTH[/HTTP]]` of a gateway, `[ADDRESS]:PORT` for clients.

use std::net::IpAddr;
use std::str::FromStr;

/// The host of a gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// A name or an address. IPv6 is in brackets.
    pub(super) address: String,
    pub(super) port: Option<u16>,
    pub(super) health: Option<u16>,
    pub(super) http: Option<u16>,
}

/// The address that clients connect to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listen {
    /// `None`: all addresses.
    pub(super) address: Option<String>,
    pub(super) port: u16,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(port) = text.strip_prefix(':') {
            let (address, port) = (None, number(port)?);
            return Ok(Self { address, port });
        }
        match text.parse()? {
            Host {
                address,
                port: Some(port),
                health: None,
                http: None,
            } => Ok(Self {
                address: Some(address),
                port,
            }),
            _ => Err(format!(
                "{text:?} is not [ADDRESS]:PORT, as :443 or 10.0.0.1:443"
            )),
        }
    }
}

impl Host {
    pub(super) fn of(address: IpAddr) -> Self {
        let address = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        Self {
            address,
            port: None,
            health: None,
            http: None,
        }
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rest, others) = text.split_once('/').unzip();
        let rest = rest.unwrap_or(text);
        let mut others = others.into_iter().flat_map(|others| others.splitn(2, '/'));
        let mut other = || others.next().map(number).transpose();
        let (health, http) = (other()?, other()?);
        let (address, port) = match rest.rsplit_once(':') {
            Some((address, port)) if !port.ends_with(']') => (address, Some(number(port)?)),
            _ => (rest, None),
        };
        let six = address
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let good = match six {
            Some(six) => six.parse::<std::net::Ipv6Addr>().is_ok(),
            None => is_name(address),
        };
        if !good {
            return Err(format!(
                "{address:?} is no name or address of a host; HOST[:PORT][/HEALTH[/HTTP]], as 10.0.0.2:443/9443/80 or [2001:db8::2]"
            ));
        }
        Ok(Self {
            address: address.to_owned(),
            port,
            health,
            http,
        })
    }
}

/// Only characters that are one word in the programs' configurations.
fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !text.is_empty() && text.chars().all(fits) && !text.starts_with('-')
}

fn number(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| format!("{text:?} is not a port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read() {
        let read = |text: &str| {
            let host: Host = text.parse().unwrap();
            (host.address, host.port, host.health, host.http)
        };
        assert_eq!(read("a.example"), ("a.example".into(), None, None, None));
        assert_eq!(
            read("10.0.0.2:8443/9443"),
            ("10.0.0.2".into(), Some(8443), Some(9443), None)
        );
        assert_eq!(read("[::1]"), ("[::1]".into(), None, None, None));
        assert_eq!(
            read("[::1]:1/2/3"),
            ("[::1]".into(), Some(1), Some(2), Some(3))
        );
    }

    #[test]
    fn invalid_hosts_are_refused() {
        for text in [
            "",
            ":443",
            "::1",
            "a b",
            "a:0",
            "a:x",
            "a/70000",
            "a/1/2/3",
            "a//80",
            "[a]",
            "a\nserver x",
            "-a",
            "a;b",
        ] {
            assert!(text.parse::<Host>().is_err(), "{text:?}");
        }
    }
}
