//! The daemon's lines of the audit trail, which [`hsmux_audit`] writes.

use std::sync::Arc;

use hsmux_audit::{Actor, Event, OnFailure, Settings, Trail};
use hsmux_config::Config;
use serde_json::{Map, Value};

use crate::admin::{AdminRequest, Announced, Stage};

/// The process of a request.
#[derive(Clone)]
pub struct Who {
    /// The user id that the kernel vouches for.
    pub uid: u32,
    /// The user's account, for shares and limits: subordinate ids have that of their user.
    pub account: u32,
    /// The process id.
    pub pid: i32,
    /// The other host, if it is one. The kernel sees this process instead.
    pub host: Option<Arc<str>>,
    /// Its name on the trail, with the program's name for itself.
    pub actor: Arc<Actor>,
}

/// The most characters of a program's name for itself, which is on each of its lines.
const LONGEST_NAME: usize = 128;

impl Who {
    /// A process of this machine.
    pub fn new(uid: u32, pid: i32, program: impl Into<String>) -> Self {
        let program: String = program.into().chars().take(LONGEST_NAME).collect();
        Self {
            uid,
            account: uid,
            pid,
            host: None,
            actor: Arc::new(Actor::process(uid, pid, program)),
        }
    }

    /// This process, for a user whom the kernel does not report.
    pub fn here(uid: u32, program: impl Into<String>) -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Self::new(uid, pid, program)
    }

    /// Another host, for which this process acts.
    pub fn of_host(uid: u32, name: &str) -> Self {
        Self {
            host: Some(name.into()),
            ..Self::here(uid, of_host(name))
        }
    }

    /// A service of this daemon.
    pub fn of_service(uid: u32, pid: i32, name: &str) -> Self {
        let actor = Actor {
            actor: Some(name.to_owned()),
            ..Actor::default()
        };
        Self {
            uid,
            account: uid,
            pid,
            host: None,
            actor: Arc::new(actor),
        }
    }

    /// The actor of a request on behalf of a client of the service.
    pub fn for_client(&self, client: Option<&str>) -> Arc<Actor> {
        match client {
            None => Arc::clone(&self.actor),
            Some(client) => Arc::new(Actor {
                peer: Some(client.chars().take(LONGEST_NAME).collect()),
                ..Actor::clone(&self.actor)
            }),
        }
    }

    /// The program's name for itself.
    pub fn program(&self) -> &str {
        self.actor.program.as_deref().unwrap_or_default()
    }
}

/// The program's name on the trail for another host.
pub fn of_host(name: &str) -> String {
    format!("host {name}")
}

/// The settings of `[audit]`.
pub fn settings(config: &Config) -> Settings {
    let audit = &config.audit;
    Settings {
        file: audit.file.clone(),
        state: config.state.clone(),
        uses: audit.keys,
        on_failure: OnFailure::which(audit.stops),
        checkpoint: audit.checkpoint,
    }
}

/// Writes the line before an administrative action, if it needs one. After an error the action must not begin.
pub fn announce(trail: &Trail, who: &Who, request: &AdminRequest) -> hsmux_token::Result<()> {
    let begun = || act(who, request).outcome("begun");
    match request.announced() {
        Announced::No => Ok(()),
        Announced::ByPolicy => trail.announce_by_policy(begun()),
        Announced::Always => trail.announce(begun()),
    }
}

/// The line of an administrative action and its result.
pub fn ended(who: &Who, request: &AdminRequest, outcome: &Result<(), String>) -> Event {
    let event = act(who, request);
    match outcome {
        Ok(()) => event,
        Err(why) => event.outcome(why),
    }
}

/// The name of C_Login on the trail.
pub const LOGIN: &str = "login";

/// The line of a login.
pub fn login(who: &Who, outcome: &hsmux_token::Result<()>) -> Event {
    let event = Event::act(&who.actor, LOGIN, Map::new());
    match outcome {
        Ok(()) => event,
        Err(why) => event.outcome(why.to_string()),
    }
}

/// A request for the log, such as `key-generate label=web spec=ec:p256`. Long values, such as certificates, are left out.
pub fn summary(request: &AdminRequest) -> String {
    let (act, fields, stage) = parts(request);
    let mut words = vec![act];
    let word = |(name, value): (&String, &Value)| Some(format!("{name}={}", short(value)?));
    words.extend(fields.iter().filter_map(word));
    if let Some(Stage::Failed(why)) = stage {
        words.push(format!("failed: {why}"));
    }
    words.join(" ")
}

/// A value for the log; `None` for none.
fn short(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => {
            let words: Option<Vec<_>> = items.iter().map(Value::as_str).collect();
            words.map_or_else(|| items.len().to_string(), |words| words.join(","))
        }
        Value::Null | Value::Object(_) => return None,
    };
    match text.chars().count() {
        0 => None,
        1..=LONGEST_NAME => Some(text),
        count => Some(format!("({count} characters)")),
    }
}

fn act(who: &Who, request: &AdminRequest) -> Event {
    let (name, fields, stage) = parts(request);
    let event = Event::act(&who.actor, &name, fields);
    match stage {
        Some(Stage::Failed(why)) => event.outcome(why),
        _ => event,
    }
}

/// The name of an act, its fields, and the stage of one that a command does itself.
fn parts(request: &AdminRequest) -> (String, Map<String, Value>, Option<&Stage>) {
    let (said, stage) = match request {
        AdminRequest::LocalAction { action, stage } => (serde_json::to_value(action), Some(stage)),
        other => (serde_json::to_value(other), None),
    };
    let Ok(Value::Object(mut fields)) = said else {
        return ("unknown".to_owned(), Map::new(), None);
    };
    let act = fields.remove("act").unwrap_or_default();
    (act.as_str().unwrap_or("unknown").to_owned(), fields, stage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::LocalAction;

    #[test]
    fn the_name_of_a_program_has_128_characters() {
        let who = Who::new(1, 2, "é".repeat(5000));
        assert_eq!(who.program(), "é".repeat(128));
        assert_eq!(who.actor.program.as_deref(), Some(who.program()));
        assert_eq!(Who::new(1, 2, "openssl").program(), "openssl");
    }

    #[test]
    fn the_log_gets_acts_in_words_and_no_certificate() {
        let import = AdminRequest::CertImport {
            der: "30".repeat(400),
            label: Some("web".into()),
            id: None,
        };
        assert_eq!(
            summary(&import),
            "cert-import der=(800 characters) label=web"
        );
        let delete = AdminRequest::KeyDelete {
            key: "pkcs11:object=web".into(),
            objects: [("private key".into(), "00ff".into())].into(),
            broker_keys: false,
        };
        let words = "key-delete key=pkcs11:object=web objects=1";
        assert_eq!(summary(&delete), words);
        let failed = AdminRequest::LocalAction {
            action: LocalAction::CardClone {
                from: "card1".into(),
                to: vec!["card2".into(), "card3".into()],
            },
            stage: Stage::Failed("no reader".into()),
        };
        let words = "card-clone from=card1 to=card2,card3 failed: no reader";
        assert_eq!(summary(&failed), words);
    }
}
