//! What users are refused, as the trail has it.

use std::sync::Arc;

use hsmux_audit::{Actor, Count, Event, Repeats, Trail};
use serde_json::{Map, Value};

use crate::audit::Who;

/// What somebody may not do is cheap to try: of each user the first of a minute has a line, and the others are a
/// number in the next one.
pub struct Refusals {
    trail: Arc<Trail>,
    repeats: Repeats<Tried>,
}

/// A user, and what he was refused.
type Tried = (u32, &'static str);

impl Refusals {
    /// Nobody was refused anything yet.
    pub fn new(trail: &Arc<Trail>) -> Self {
        Self {
            trail: Arc::clone(trail),
            repeats: Repeats::default(),
        }
    }

    /// Somebody was refused this.
    pub fn record(&self, who: &Who, what: &'static str, why: &str) {
        if self.is_first(who, what) {
            let event = Event::act(&who.actor, what, Map::new());
            self.trail.record(event.outcome(why));
        }
    }

    /// Counts it; whether it is one for a line of its own, which the caller writes.
    pub fn is_first(&self, who: &Who, what: &'static str) -> bool {
        self.is_among(who, what, 1)
    }

    /// The same where so many of a minute have one.
    pub fn is_among(&self, who: &Who, what: &'static str, lines: u64) -> bool {
        self.sum_up(false);
        self.repeats.is_among(Some((who.uid, what)), lines)
    }

    /// Records what was counted of those whose minute is over; of all at the end.
    pub fn sum_up(&self, end: bool) {
        for (tried, count) in self.repeats.over(end) {
            self.trail.record(line(tried, count));
        }
    }
}

fn line(tried: Option<Tried>, count: Count) -> Event {
    let (uid, what) = tried.unzip();
    let actor = Actor {
        uid,
        ..Actor::default()
    };
    let mut fields = count.fields();
    fields.extend(what.map(|what| ("what".to_owned(), Value::from(what))));
    Event::act(&Arc::new(actor), "denied", fields).outcome("refused")
}
