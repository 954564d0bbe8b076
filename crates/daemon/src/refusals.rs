//! Refusals on the audit trail, with a limit of lines.

use std::sync::Arc;

use hsmux_audit::{Actor, Event, RepeatCount, Repeats, Trail};
use serde_json::{Map, Value};

use crate::audit::{self, Who};

/// Refusals. Attempts are cheap, so only the first refusal of a user in a minute has a line. The next line has the
/// number of the others.
pub struct Refusals {
    trail: Arc<Trail>,
    repeats: Repeats<Tried>,
}

/// The account of the user, whether the user is one of its subordinate ids, the host (all users of another host are one
/// user here), and the refused call.
type Tried = (u32, bool, Option<Arc<str>>, &'static str);

impl Refusals {
    /// No refusals yet.
    pub fn new(trail: &Arc<Trail>) -> Self {
        Self {
            trail: Arc::clone(trail),
            repeats: Repeats::default(),
        }
    }

    /// Records a refusal. True if it has a line of its own, so that the log should have one.
    pub fn record(&self, who: &Who, what: &'static str, why: &str) -> bool {
        let is_first = self.is_first(who, what);
        if is_first {
            let event = Event::act(&who.actor, what, Map::new());
            self.trail.record(event.outcome(why));
        }
        is_first
    }

    /// Counts a refusal. True if it should have a line of its own, which the caller writes.
    pub fn is_first(&self, who: &Who, what: &'static str) -> bool {
        self.is_among(who, what, 1)
    }

    /// The same with `lines` lines in a minute.
    pub fn is_among(&self, who: &Who, what: &'static str, lines: u64) -> bool {
        self.sum_up(false);
        let is_subordinate = who.account != who.uid;
        let tried = (who.account, is_subordinate, who.host.clone(), what);
        self.repeats.is_among(Some(tried), lines)
    }

    /// Records the counts whose minute is over. With `end`, records all of them.
    pub fn sum_up(&self, end: bool) {
        for (tried, count) in self.repeats.over(end) {
            self.trail.record(line(tried, count));
        }
    }
}

fn line(tried: Option<Tried>, count: RepeatCount) -> Event {
    let mut actor = Actor::default();
    let mut fields = count.fields();
    if let Some((account, is_subordinate, host, what)) = tried {
        if is_subordinate {
            // Which of them it was each time is not known.
            fields.insert("subordinate_uids_from".to_owned(), Value::from(account));
        } else {
            actor.uid = Some(account);
        }
        actor.program = host.map(|host| audit::of_host(&host));
        fields.insert("what".to_owned(), Value::from(what));
    }
    Event::act(&Arc::new(actor), "denied", fields).outcome("refused")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use hsmux_audit::{OnFailure, Settings};

    use super::*;

    #[test]
    fn hosts_are_told_apart_though_they_are_one_user() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            file: folder.path().join("audit.log"),
            state: folder.path().to_owned(),
            uses: false,
            on_failure: OnFailure::Stop,
            checkpoint: Duration::from_secs(60),
        };
        let trail = Arc::new(Trail::open(&settings).unwrap());
        let refusals = Refusals::new(&trail);
        for host in ["web1", "web2", "web1", "web2"] {
            refusals.record(&Who::of_host(7, host), "C_DestroyObject", "may not");
        }
        refusals.sum_up(true);
        trail.close();
        let text = fs::read_to_string(&settings.file).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let told = |line: &Value| {
            let field = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            (field("program"), field("act"))
        };
        let mut told: Vec<_> = lines
            .filter(|line: &Value| line["checkpoint"].is_null())
            .map(|line| told(&line))
            .collect();
        told.sort();
        let all = ["host web1", "host web2"]
            .map(|host| ["C_DestroyObject", "denied"].map(|act| (host.to_owned(), act.to_owned())));
        assert_eq!(told, all.concat());
    }
}
