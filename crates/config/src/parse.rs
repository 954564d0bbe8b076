//! Parsing of the file's text into a [`Config`], with every mistake.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Policy;
use crate::{ENVELOPE_LIFE, LoneKeys};
use toml::de::{DeTable, DeValue};

use super::reader::{ExternalReference, Fields, Source, integer, text, uri};
use super::schema::SECTIONS;
use super::sections::{WithSpan, many, one, required, unique};
use super::{
    Admin, AuditSection, BrokerSection, Config, Draft, ExternalReferences, Listener, Login,
    ModuleSection, PoolSection, Socket, StartedBy, User,
};
use super::{broker, gateway, member, node, traces};

/// The length of the label in CK_TOKEN_INFO (PKCS#11 3.0, section 3.2).
const LABEL_BYTES: usize = 32;

/// Reads a file's text: the configuration, and its mistakes in order of lines.
pub fn config(file: &Path, text: &str) -> Draft {
    let mut source = Source::new(file, text);
    let (document, faults) = DeTable::parse_recoverable(text);
    for fault in faults {
        source.error(fault.span().unwrap_or(0..0), fault.message().trim());
    }
    let config = read(&mut source, document.get_ref());
    let mut mistakes = source.mistakes;
    mistakes.sort_by_key(|mistake| mistake.line);
    mistakes.dedup();
    Draft { config, mistakes }
}

/// What starts the process of a service.
pub fn started_by(fields: &mut Fields<'_, '_, '_>) -> StartedBy {
    let words = [
        ("daemon", StartedBy::Daemon),
        ("systemd", StartedBy::Systemd),
    ];
    fields.choice("started_by", &words).unwrap_or_default()
}

fn read(source: &mut Source<'_>, document: &DeTable<'_>) -> Config {
    let names = SECTIONS.iter().map(|section| section.name);
    source.unknown(document, "the file", &names);

    let tokens = member::read(source, document);
    // A link to another host carries no changes of objects.
    let own = tokens.iter().filter(|member| member.node.is_none());
    let count = own.count().max(1) as u64;
    let serves_keys = document.contains_key("broker");
    let pool = one(source, document, "pool", |fields| {
        pool(fields, count, serves_keys)
    });
    let read_only = pool.read_only;
    let (state, worker) = one(source, document, "daemon", |fields| {
        let state = fields.path("state");
        let state = state.unwrap_or_else(|| fields.source.path("state"));
        fields.names(
            "state",
            ExternalReference::Folder("state folder", state.clone()),
        );
        (state, fields.path("worker"))
    });
    let mut listeners = Vec::new();
    listeners.extend(one(source, document, "daemon", |fields| {
        listener(fields, Some("run/hsmux.sock"), read_only)
    }));
    listeners.extend(many(source, document, "listener", |fields| {
        listener(fields, None, read_only)
    }));
    let socket = |listener: &Listener| listener.socket.path.display().to_string();
    unique(source, &listeners, "socket", |(listener, span)| {
        (socket(listener), span.clone())
    });
    let listeners: Vec<_> = listeners
        .into_iter()
        .map(|(listener, _)| listener)
        .collect();

    // The first listener, of [daemon], has a default socket.
    let first = &listeners[0].socket.path;
    let admin = one(source, document, "admin", |fields| admin(fields, first));
    let module = one(source, document, "module", |fields| {
        module(fields, &listeners)
    });
    let audit = one(source, document, "audit", |fields| audit(fields, &state));
    let traces = document
        .contains_key("traces")
        .then(|| one(source, document, "traces", traces::traces));
    let broker = broker(source, document, &state);
    let gateway = gateway::read(source, document);
    let node = node::read(source, document, &tokens);
    let starters = [
        ("broker", broker.as_ref().map(|broker| broker.started_by)),
        (
            "gateway",
            gateway.as_ref().map(|gateway| gateway.started_by),
        ),
        ("node", node.as_ref().map(|node| node.started_by)),
    ];
    for (service, starter) in starters {
        if starter == Some(StartedBy::Systemd) {
            let path = admin.link_socket(service);
            source.names(&document[service].span(), ExternalReference::Socket(path));
        }
    }
    Config {
        file: source.file.to_owned(),
        text: source.text.into(),
        pool,
        admin,
        module,
        audit,
        traces: traces.flatten(),
        broker,
        gateway,
        node,
        tokens,
        listeners,
        state,
        worker,
        external_references: ExternalReferences(std::mem::take(&mut source.named)),
    }
}

fn pool(fields: &mut Fields<'_, '_, '_>, members: u64, broker: bool) -> PoolSection {
    let policies = [
        ("least-loaded", Policy::LeastLoaded),
        ("round-robin", Policy::RoundRobin),
        ("first-available", Policy::FirstAvailable),
    ];
    let label = required(fields, "label", |fields| {
        fields.read("label", |value| match text(value)? {
            "" => Err("the label is empty".into()),
            label if label.len() > LABEL_BYTES => Err(format!("longer than {LABEL_BYTES} bytes")),
            label => Ok(label.to_owned()),
        })
    });
    let replicas = fields.number("replicas", 1..=members);
    PoolSection {
        label: label.unwrap_or_default(),
        policy: fields.choice("policy", &policies).unwrap_or_default(),
        read_only: fields.flag("read_only").unwrap_or(false),
        queue: fields.number("queue", 1..=1_000_000).unwrap_or(1024) as usize,
        deadline: fields
            .duration("deadline")
            .unwrap_or(Duration::from_secs(30)),
        replicas: replicas.unwrap_or(members.min(2)) as usize,
        lone_keys: match replicas {
            Some(_) => LoneKeys::Refused,
            None => LoneKeys::Made,
        },
        envelope_life: fields
            .duration_from("envelope_life", "1m", "8760h")
            .unwrap_or(ENVELOPE_LIFE),
        counted: fields.list("counted", uri).unwrap_or_default(),
        watch: fields.flag("watch").unwrap_or(broker),
    }
}

fn listener(
    fields: &mut Fields<'_, '_, '_>,
    default: Option<&str>,
    read_only: bool,
) -> Option<WithSpan<Listener>> {
    let words = [("pin", Login::Pin), ("peer", Login::Peer)];
    let path = match default {
        Some(path) => Some(
            fields
                .path("socket")
                .unwrap_or_else(|| fields.source.path(path)),
        ),
        None => required(fields, "socket", |fields| fields.path("socket")),
    };
    let own_read_only = fields.flag("read_only");
    if read_only && own_read_only == Some(false) {
        let message = "read_only = false cannot undo [pool] read_only = true; \
                       set it on each listener instead";
        fields.source.error(fields.span_of("read_only"), message);
    }
    let socket = socket(fields, path, 0o660);
    let listener = Listener {
        socket: Socket::default(),
        keys: fields.list("keys", uri).unwrap_or_default(),
        broker_keys: false,
        read_only: own_read_only.unwrap_or(false) || read_only,
        direct: fields.flag("direct").unwrap_or(true),
        login: fields.choice("login", &words).unwrap_or(Login::Pin),
        pin: fields.pin("pin"),
    };
    if listener.login == Login::Peer && listener.pin.is_some() {
        let message = "login = \"peer\" needs no PIN; take one of the two lines out";
        fields.source.error(fields.span_of("pin"), message);
    }
    let listener = Listener {
        socket: socket?,
        ..listener
    };
    Some((listener, fields.span_of("socket")))
}

fn socket(fields: &mut Fields<'_, '_, '_>, path: Option<PathBuf>, mode: u32) -> Option<Socket> {
    let group = fields.text("group");
    let allow_users = fields.list("allow_users", user).unwrap_or_default();
    for user in &allow_users {
        fields.names(
            "allow_users",
            ExternalReference::User("allow_users", user.clone()),
        );
    }
    if let Some(group) = &group {
        fields.names("group", ExternalReference::Group(group.clone()));
    }
    let mode = fields.mode("mode").unwrap_or(mode);
    let path = path?;
    fields.names("socket", ExternalReference::Socket(path.clone()));
    Some(Socket {
        path,
        mode,
        group,
        allow_users,
    })
}

pub fn user(value: &DeValue<'_>) -> Result<User, String> {
    if let Some(id) = integer(value) {
        let id = u32::try_from(id).map_err(|_| format!("{id} is not a user id"))?;
        return Ok(User::Id(id));
    }
    Ok(User::Name(text(value)?.to_owned()))
}

fn admin(fields: &mut Fields<'_, '_, '_>, first: &Path) -> Admin {
    let stem = first.file_stem().unwrap_or_default().to_string_lossy();
    let path = fields
        .path("socket")
        .unwrap_or_else(|| first.with_file_name(format!("{stem}-admin.sock")));
    if path == first {
        let message = "administration has a listener of its own; give it another socket";
        fields.source.error(fields.span_of("socket"), message);
    }
    let socket = socket(fields, Some(path), 0o600).unwrap_or_default();
    Admin { socket }
}

fn module(fields: &mut Fields<'_, '_, '_>, listeners: &[Listener]) -> ModuleSection {
    let words = [("daemon", false), ("embedded", true)];
    let embedded = fields.choice("mode", &words).unwrap_or(false);
    if embedded && listeners.iter().any(|listener| listener.read_only) {
        let message = "embedded and read_only exclude each other: embedded, the PIN is in the \
                       application's own process and nothing can hold it back; \
                       use mode = \"daemon\"";
        fields.source.error(fields.span_of("mode"), message);
    }
    let socket = fields
        .path("socket")
        .unwrap_or_else(|| listeners[0].socket.path.clone());
    if !listeners
        .iter()
        .any(|listener| listener.socket.path == socket)
    {
        let message = "no listener of this file has that socket";
        fields.source.error(fields.span_of("socket"), message);
    }
    ModuleSection { embedded, socket }
}

fn broker(source: &mut Source<'_>, document: &DeTable<'_>, state: &Path) -> Option<BrokerSection> {
    let policies = many(source, document, "policy", broker::rule);
    if !document.contains_key("broker") {
        for (name, title) in [("policy", "[[policy]]"), ("limit", "[[limit]]")] {
            if let Some(section) = document.get(name) {
                let message = format!("{title} is for the broker: add [broker]");
                source.error(section.span(), message);
            }
        }
        return None;
    }
    let mut section = one(source, document, "broker", |fields| {
        broker::broker(fields, state)
    });
    let each = section.limits.each.clone();
    section.limits.special = many(source, document, "limit", |fields| {
        broker::limit(fields, &each)
    });
    Some(BrokerSection {
        policies,
        ..section
    })
}

fn audit(fields: &mut Fields<'_, '_, '_>, state: &Path) -> AuditSection {
    let words = [("stop", true), ("continue", false)];
    AuditSection {
        file: fields
            .path("file")
            .unwrap_or_else(|| state.join("audit.log")),
        keys: fields.flag("keys").unwrap_or(false),
        stops: fields.choice("on_failure", &words).unwrap_or(true),
        checkpoint: fields
            .duration("checkpoint")
            .unwrap_or(Duration::from_secs(60)),
    }
}
