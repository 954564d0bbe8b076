//! Each `[[token]]`: a member of the pool.

use std::path::PathBuf;
use std::time::Duration;

use hsmux_token::Uri;
use toml::de::DeTable;

use super::node;
use super::parse::user;
use super::reader::{ExternalReference, Fields, Source, text};
use super::sections::{WithSpan, many, required, unique};
use super::{Isolation, Member, Sandbox, User};

pub fn read(source: &mut Source<'_>, document: &DeTable<'_>) -> Vec<Member> {
    let members = many(source, document, "token", |fields| {
        member(fields, document.contains_key("node"))
    });
    if members.is_empty() && !document.contains_key("token") {
        source.error(0..0, "no [[token]]: a pool needs at least one member");
    }
    unique(source, &members, "name", |(member, span)| {
        (member.name.clone(), span.clone())
    });
    unique(source, &members, "token", |(member, span)| {
        (
            match &member.node {
                Some(node) => node.clone(),
                None => format!("{} of {}", member.uri, member.module.display()),
            },
            span.clone(),
        )
    });
    members.into_iter().map(|(member, _)| member).collect()
}

/// Keys of every member, with a module or another host.
pub fn shared(fields: &mut Fields<'_, '_, '_>) -> Member {
    Member {
        name: String::new(),
        node: None,
        module: PathBuf::new(),
        uri: Uri::default(),
        pin: None,
        isolation: Isolation::Process,
        sessions: None,
        workers: 1,
        weight: fields.number("weight", 1..=1000).unwrap_or(1) as u32,
        timeout: fields
            .duration("timeout")
            .unwrap_or(Duration::from_secs(10)),
        env: Vec::new(),
        sandbox: Sandbox::Auto,
        folders: Vec::new(),
        user: None,
        watch: None,
        copies: None,
        trusted: fields.flag("trusted").unwrap_or(false),
        line: fields.source.line(fields.span.start),
    }
}

fn member(fields: &mut Fields<'_, '_, '_>, identity: bool) -> Option<WithSpan<Member>> {
    if fields.has("node") {
        return node::member(fields, identity);
    }
    let words = [
        ("process", Isolation::Process),
        ("thread", Isolation::Thread),
    ];
    let module = required(fields, "module", |fields| fields.path("module"));
    if let Some(module) = &module {
        fields.names("module", ExternalReference::Module(module.clone()));
    }
    let uri = required(fields, "uri", |fields| fields.uri("uri"));
    if let Some(uri) = &uri {
        if !uri.names_token() {
            let message = "uri: it names no token; write token=, serial= or slot-id=";
            fields.source.error(fields.span_of("uri"), message);
        } else if uri.pin_source.is_some() || uri.module_path.is_some() {
            let message = "uri: PIN and module have keys of their own here, pin = and module =";
            fields.source.error(fields.span_of("uri"), message);
        }
    }
    let name = fields.read("name", |value| match text(value)? {
        name if name.is_empty() || name.contains(['#', '/', '\0', '\n']) => {
            Err(format!("{name:?} is empty or has a '#' or '/'"))
        }
        name => Ok(name.to_owned()),
    });
    let member = Member {
        uri: uri.clone().unwrap_or_default(),
        pin: fields.pin("pin"),
        isolation: fields
            .choice("isolation", &words)
            .unwrap_or(Isolation::Process),
        sessions: fields.number("sessions", 1..=1024).map(|most| most as u32),
        workers: fields.number("workers", 1..=256).unwrap_or(1) as u32,
        env: fields.env("env").unwrap_or_default(),
        sandbox: fields.choice("sandbox", SANDBOXES).unwrap_or(Sandbox::Auto),
        folders: folders(fields),
        user: process_user(fields),
        watch: fields.flag("watch"),
        copies: fields.flag("copies"),
        ..shared(fields)
    };
    if member.isolation == Isolation::Thread {
        for (key, useless) in [
            ("workers", member.workers > 1),
            ("env", !member.env.is_empty()),
            ("sandbox", member.sandbox != Sandbox::Auto),
            ("folders", !member.folders.is_empty()),
            ("user", member.user.is_some()),
        ] {
            if useless {
                let message = format!("{key} needs isolation = \"process\"");
                fields.source.error(fields.span_of(key), message);
            }
        }
    }
    let uri = uri?;
    let name = name
        .or(uri.token.clone())
        .or(uri.serial.clone())
        .or(uri.slot_id.map(|id| format!("slot-{id}")))
        .unwrap_or_else(|| uri.to_string());
    let member = Member {
        name,
        module: module?,
        ..member
    };
    Some((member, fields.span.clone()))
}

const SANDBOXES: &[(&str, Sandbox)] = &[
    ("auto", Sandbox::Auto),
    ("file", Sandbox::File),
    ("pcsc", Sandbox::Pcsc),
    ("network", Sandbox::Network),
    ("none", Sandbox::None),
];

fn folders(fields: &mut Fields<'_, '_, '_>) -> Vec<PathBuf> {
    let folders = fields.list("folders", |value| text(value).map(str::to_owned));
    let folders = folders.unwrap_or_default().into_iter();
    let folders: Vec<_> = folders.map(|folder| fields.source.path(&folder)).collect();
    for folder in &folders {
        fields.names("folders", ExternalReference::Later(folder.clone()));
    }
    folders
}

/// The user of its workers.
pub fn process_user(fields: &mut Fields<'_, '_, '_>) -> Option<User> {
    let user = fields.read("user", user)?;
    fields.names("user", ExternalReference::User("user", user.clone()));
    Some(user)
}
