//! Limits on requests of the broker's clients, and time-outs for slow clients.

use std::num::NonZeroU32;
use std::time::Duration;

use super::clients;
use crate::reader::Fields;

/// Limits for each client, and for all connections together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Limits of a client without a matching `[[limit]]`.
    pub each: Allowance,
    /// Each `[[limit]]`; the first that matches a client counts.
    pub special: Vec<Limit>,
    /// Requests per second from one address without a credential, or with an unknown one.
    pub stranger_rate: NonZeroU32,
    /// Bytes of the bodies of all requests together, and of answers until they are read. At least one body of
    /// [`Allowance::max_body`] fits.
    pub max_bodies: usize,
    /// Connections of all clients. When all are taken, the one that has been idle longest is closed.
    pub connections: usize,
    /// How long the head of a request may take from its first byte, and the body after it.
    pub read_timeout: Duration,
    /// How long a connection stays open without a request.
    pub idle_timeout: Duration,
}

/// Limits of one client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// The maximum length of a request's body, in bytes.
    pub max_body: usize,
    /// Requests per second; `None`: any number.
    pub rate: Option<NonZeroU32>,
    /// How many requests may come at once; `None`: those of one second.
    pub burst: Option<NonZeroU32>,
    /// Requests that may run or wait at once.
    pub in_flight: usize,
}

/// `[[limit]]`: limits for some clients in place of the general ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Clients, as in [`Rule`](super::Rule).
    pub clients: Vec<String>,
    /// The limits of each of them.
    pub allowance: Allowance,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            // The default of OpenBao and Vault.
            max_body: 32 << 20,
            rate: None,
            burst: None,
            in_flight: 1024,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            each: Allowance::default(),
            special: Vec::new(),
            stranger_rate: const { NonZeroU32::new(100).unwrap() },
            max_bodies: 256 << 20,
            connections: 10_000,
            read_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
        }
    }
}

/// Reads the limits of `[broker]`.
pub fn limits(fields: &mut Fields<'_, '_, '_>) -> Limits {
    let or = Limits::default();
    Limits {
        each: allowance(fields, &or.each),
        stranger_rate: per_second(fields, "stranger_rate").unwrap_or(or.stranger_rate),
        max_bodies: fields
            .number("max_bodies", 1024..=1 << 40)
            .map_or(or.max_bodies, |bytes| bytes as usize),
        connections: fields
            .number("connections", 16..=1_000_000)
            .map_or(or.connections, |count| count as usize),
        read_timeout: fields.duration("read_timeout").unwrap_or(or.read_timeout),
        idle_timeout: fields.duration("idle_timeout").unwrap_or(or.idle_timeout),
        special: or.special,
    }
}

/// Reads a `[[limit]]`; missing keys take their values from `each`.
pub fn limit(fields: &mut Fields<'_, '_, '_>, each: &Allowance) -> Option<Limit> {
    if !fields.has("clients") {
        fields.missing("clients");
    }
    let allowance = allowance(fields, each);
    Some(Limit {
        clients: clients(fields)?,
        allowance,
    })
}

fn allowance(fields: &mut Fields<'_, '_, '_>, or: &Allowance) -> Allowance {
    let (rate, burst) = (per_second(fields, "rate"), per_second(fields, "burst"));
    let allowance = Allowance {
        max_body: fields
            .number("max_body", 1024..=1 << 30)
            .map_or(or.max_body, |bytes| bytes as usize),
        rate: rate.or(or.rate),
        // A burst of `[broker]` does not fit another rate.
        burst: burst.or(or.burst.filter(|_| rate.is_none())),
        in_flight: fields
            .number("in_flight", 1..=1_000_000)
            .map_or(or.in_flight, |count| count as usize),
    };
    if allowance.burst.is_some() && allowance.rate.is_none() {
        let message = "burst is of a rate: give rate, too";
        fields.source.error(fields.span_of("burst"), message);
    }
    allowance
}

fn per_second(fields: &mut Fields<'_, '_, '_>, name: &str) -> Option<NonZeroU32> {
    let number = fields.number(name, 1..=1_000_000)?;
    NonZeroU32::new(u32::try_from(number).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mistake, parse};

    const GOOD: &str = r#"[pool]
label = "x"
[broker]
listen = ["127.0.0.1:0"]
rate = 100
burst = 500
in_flight = 8
[[limit]]
clients = ["token:batch"]
rate = 1000
max_body = 4096
[[limit]]
clients = ["dns:app.example", "*"]
burst = 200
[[token]]
module = "vendor.so"
uri = "pkcs11:token=a"
"#;

    fn read(text: &str) -> Result<Limits, Vec<Mistake>> {
        let config = parse(std::path::Path::new("/hsmux.toml"), text)?;
        Ok(config.broker.expect("a broker").limits)
    }

    #[test]
    fn what_a_limit_does_not_say_is_as_in_the_broker() {
        let limits = read(GOOD).unwrap();
        let [batch, rest] = &limits.special[..] else {
            panic!("{limits:?}");
        };
        assert_eq!(batch.clients, ["token:batch"]);
        let number = NonZeroU32::new;
        let batches = Allowance {
            max_body: 4096,
            rate: number(1000),
            burst: None,
            in_flight: 8,
        };
        assert_eq!(batch.allowance, batches);
        let rests = Allowance {
            burst: number(200),
            ..limits.each.clone()
        };
        assert_eq!(rest.allowance, rests);
    }

    #[test]
    fn mistakes_have_their_lines() {
        for (good, bad, line, words) in [
            ("rate = 1000", "rat = 1000", 10, "did you mean \"rate\""),
            ("rate = 1000", "rate = 0", 10, "from 1 to 1000000"),
            ("4096", "1", 11, "from 1024 to"),
            ("token:batch", "batch", 9, "is no client"),
            ("clients = [\"token:batch\"]", "", 8, "needs clients"),
            ("rate = 100\nburst = 500", "\n", 14, "burst is of a rate"),
            ("[broker]", "[breker]", 3, "did you mean \"broker\""),
        ] {
            assert!(GOOD.contains(good), "{good}");
            let mistakes = read(&GOOD.replacen(good, bad, 1)).unwrap_err();
            let found = |m: &Mistake| m.line == line && m.message.contains(words);
            assert!(mistakes.iter().any(found), "{bad}: {mistakes:#?}");
        }
    }
}
