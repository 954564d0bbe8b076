//! What a client of the broker may cost, and how long a slow one is waited for.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::config::reader::Fields;

/// Limits of each client, and of all connections together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest body of a request, in bytes.
    pub max_body: usize,
    /// Requests per second of one client; `None`: any number.
    pub rate: Option<NonZeroU32>,
    /// How many of them may come at once.
    pub burst: Option<NonZeroU32>,
    /// Requests of one client that may run or wait at once.
    pub in_flight: usize,
    /// Requests per second from one address that show nothing, or what nobody knows yet.
    pub stranger_rate: NonZeroU32,
    /// Connections of all clients; past it the one that has been idle longest makes room.
    pub connections: usize,
    /// How long the head of a request may take from its first byte, and the body after it.
    pub read_timeout: Duration,
    /// How long a connection stays open without a request.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // As the dialect's servers have it.
            max_body: 32 << 20,
            rate: None,
            burst: None,
            in_flight: 1024,
            stranger_rate: const { NonZeroU32::new(100).unwrap() },
            connections: 10_000,
            read_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
        }
    }
}

pub fn limits(fields: &mut Fields<'_, '_, '_>) -> Limits {
    let or = Limits::default();
    let number = |fields: &mut Fields<'_, '_, '_>, name| {
        let number = fields.number(name, 1..=1_000_000)?;
        NonZeroU32::new(u32::try_from(number).ok()?)
    };
    let limits = Limits {
        max_body: fields
            .number("max_body", 1024..=1 << 30)
            .map_or(or.max_body, |bytes| bytes as usize),
        rate: number(fields, "rate"),
        burst: number(fields, "burst"),
        in_flight: fields
            .number("in_flight", 1..=1_000_000)
            .map_or(or.in_flight, |count| count as usize),
        stranger_rate: number(fields, "stranger_rate").unwrap_or(or.stranger_rate),
        connections: fields
            .number("connections", 16..=1_000_000)
            .map_or(or.connections, |count| count as usize),
        read_timeout: fields.duration("read_timeout").unwrap_or(or.read_timeout),
        idle_timeout: fields.duration("idle_timeout").unwrap_or(or.idle_timeout),
    };
    if limits.burst.is_some() && limits.rate.is_none() {
        let message = "burst is of a rate: give rate, too";
        fields.source.error(fields.span_of("burst"), message);
    }
    limits
}
