//! `[gateway]`: TLS in front of other services.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use hsmux_token::Class;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::access_log::{AccessLog, access_log};
use super::acme::{Acme, NO_HTTP, acme};
use super::member::process_user;
use super::network::Network;
use super::reader::{ExternalReference, Fields, Source, text};
use super::sections::{many, one, unique};
use super::site::{ObjectSource, Site, object_source, site};
use super::{StartedBy, User, parse};

/// `[gateway]`: TLS with private keys in the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewaySection {
    /// Whose process it is; the daemon's own without it.
    pub user: Option<User>,
    /// What starts its process.
    pub started_by: StartedBy,
    /// Addresses that it listens on.
    pub listen: Vec<SocketAddr>,
    /// Addresses for plain HTTP: ACME's challenges, and redirects to HTTPS.
    pub http: Vec<SocketAddr>,
    /// Where ACME's challenges are answered, by default for all sites; `None`: they are requests like others.
    pub acme: Option<Acme>,
    /// The address of its metrics.
    pub metrics: Option<SocketAddr>,
    /// Where requests and tunnels are logged; `None`: nowhere.
    pub access_log: Option<AccessLog>,
    /// Whether each connection starts with a PROXY header.
    pub proxy_protocol: bool,
    /// Addresses from which PROXY headers are accepted.
    pub proxy_from: Vec<Network>,
    /// The maximum number of connections of all clients.
    pub connections: usize,
    /// The maximum number of handshakes at once.
    pub handshakes: usize,
    /// Bytes that requests and bodies of all clients may hold.
    pub memory: usize,
    /// Connections of one address (IPv6: of one /48); `None`: three quarters of all.
    pub source_connections: Option<usize>,
    /// Handshakes of one address; `None`: three quarters of all.
    pub source_handshakes: Option<usize>,
    /// Waiting signatures of one address; `None`: three quarters of the pool's queue.
    pub source_signatures: Option<usize>,
    /// How long a client may take for its handshake.
    pub handshake_timeout: Duration,
    /// How long a handshake may wait for its signature.
    pub sign_timeout: Duration,
    /// How long a client may take for the head of a request.
    pub idle_timeout: Duration,
    /// How long an upgraded or `tcp://` connection may carry no data.
    pub tunnel_timeout: Duration,
    /// How long `/health` reports the shutdown before connections are refused.
    pub leave_time: Duration,
    /// How long running requests may take to finish at shutdown.
    pub drain_timeout: Duration,
    /// Whether clients are given session tickets.
    pub tickets: bool,
    /// The secret for the keys of session tickets; `None`: random keys of this process.
    pub ticket_secret: Option<ObjectSource>,
    /// How long a key seals new tickets; its tickets are accepted for the same time after that.
    pub ticket_rotation: Duration,
    /// Each `[[site]]`.
    pub sites: Vec<Site>,
}

pub fn read(source: &mut Source<'_>, document: &DeTable<'_>) -> Option<GatewaySection> {
    let awaited = has_acme(document);
    let first = source.named.len();
    let sites = many(source, document, "site", |fields| {
        let spans = (fields.span_of("names"), fields.span_of("acme"));
        Some((site(fields, awaited)?, spans))
    });
    let of_sites = source.named.split_off(first).into_iter();
    let of_sites = of_sites.map(|(line, named)| (line, ExternalReference::OfSite(Box::new(named))));
    source.named.extend(of_sites);
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
    for (_, (_, span)) in sites.iter().filter(|(site, _)| site.acme.is_some()) {
        if section.http.is_empty() {
            source.error(span.clone(), NO_HTTP);
        }
    }
    let each = |(site, (span, _)): &(Site, (Range<usize>, Range<usize>))| -> Vec<_> {
        let with_span = |name: &String| (name.clone(), span.clone());
        site.names.iter().map(with_span).collect()
    };
    let names: Vec<_> = sites.iter().flat_map(each).collect();
    unique(source, &names, "name", Clone::clone);
    Some(GatewaySection {
        sites: sites.into_iter().map(|(site, _)| site).collect(),
        ..section
    })
}

/// The default of `proxy_from`: a proxy on this host.
fn loopback() -> Vec<Network> {
    let each = ["127.0.0.0/8", "::1"].map(str::parse);
    each.into_iter().flatten().collect()
}

/// Whether an ACME client may provide certificates after the gateway has started.
fn has_acme(document: &DeTable<'_>) -> bool {
    let section = document.get("gateway").map(Spanned::get_ref);
    let section = section.and_then(DeValue::as_table);
    section.is_some_and(|section| section.contains_key("acme"))
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
    let http = fields.list("http", address).unwrap_or_default();
    let metrics = fields.read("metrics", address);
    let taken = listen.iter().flatten().chain(&metrics);
    let twice = taken
        .filter(|at| at.port() != 0)
        .find(|at| http.contains(at));
    if let Some(at) = twice {
        let message =
            format!("http: {at} is taken by listen or metrics: give it a port of its own");
        fields.source.error(fields.span_of("http"), message);
    }
    if fields.has("acme") && http.is_empty() {
        fields.source.error(fields.span_of("acme"), NO_HTTP);
    }
    let time = |fields: &mut Fields<'_, '_, '_>, name, (least, most), seconds| {
        let own = fields.duration_from(name, least, most);
        own.unwrap_or(Duration::from_secs(seconds))
    };
    let seconds = |fields: &mut Fields<'_, '_, '_>, name, seconds| {
        let own = fields.duration(name);
        own.unwrap_or(Duration::from_secs(seconds))
    };
    let number = |fields: &mut Fields<'_, '_, '_>, name, or| {
        let number = fields.number(name, 16..=1_000_000);
        number.map_or(or, |number| number as usize)
    };
    let memory = fields.number("memory", 1 << 20..=1 << 40);
    let proxy_protocol = fields.flag("proxy_protocol").unwrap_or(false);
    if !proxy_protocol && fields.has("proxy_from") {
        let message =
            "proxy_from says who sends PROXY headers: they are read with proxy_protocol = true";
        fields.source.error(fields.span_of("proxy_from"), message);
    }
    let own_share = |fields: &mut Fields<'_, '_, '_>, name| {
        let number = fields.number(name, 1..=1_000_000);
        number.map(|number| number as usize)
    };
    let tickets = fields.flag("tickets").unwrap_or(true);
    if !tickets && fields.has("ticket_secret") {
        let message =
            "ticket_secret: there are no tickets with `tickets = false`: leave one of both out";
        fields
            .source
            .error(fields.span_of("ticket_secret"), message);
    }
    GatewaySection {
        user: process_user(fields),
        started_by: parse::started_by(fields),
        tickets,
        connections: number(fields, "connections", 50_000),
        handshakes: number(fields, "handshakes", 16_384),
        memory: memory.map_or(64 << 20, |bytes| bytes as usize),
        acme: acme(fields),
        listen: listen.unwrap_or_default(),
        http,
        metrics,
        access_log: access_log(fields),
        proxy_protocol,
        proxy_from: fields
            .list("proxy_from", |value| text(value)?.parse())
            .unwrap_or_else(loopback),
        source_connections: own_share(fields, "source_connections"),
        source_handshakes: own_share(fields, "source_handshakes"),
        source_signatures: own_share(fields, "source_signatures"),
        handshake_timeout: seconds(fields, "handshake_timeout", 10),
        sign_timeout: seconds(fields, "sign_timeout", 30),
        idle_timeout: seconds(fields, "idle_timeout", 60),
        tunnel_timeout: time(fields, "tunnel_timeout", ("1ms", "168h"), 3600),
        // Longer than haproxy needs to notice, with the checks that `hsmux haproxy config` sets.
        leave_time: time(fields, "leave_time", ("0s", "24h"), 3),
        drain_timeout: time(fields, "drain_timeout", ("0s", "24h"), 10),
        ticket_secret: object_source(fields, "ticket_secret", Class::SECRET_KEY),
        // Below the minimum, hosts with slightly different clocks have no common key. Above the maximum, a leaked key
        // opens too many tickets.
        ticket_rotation: time(fields, "ticket_rotation", ("1m", "168h"), 12 * 3600),
        sites: Vec::new(),
    }
}
