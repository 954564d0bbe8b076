//! A connection that only looks for what others have added to a token or removed from it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::{Error, Kind, ObjectId, Result, Token};

use crate::clock;
use crate::core::Core;
use crate::life::pin_refused;
use crate::object_sync::Reading;
use crate::record::{SeatConnection, back_off};

/// The pause between two looks: changes of others are found within a second.
const REST: (Duration, Duration) = (Duration::from_millis(250), Duration::from_millis(700));

/// The pause is this many times the duration of the look, within the bounds of `REST`.
const SHARE: u32 = 9;

/// The lifetime of a probe's process, at first and at most. A module may show changes of others to new processes
/// only, and a look by handles sees no new attributes.
const FRESH: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(600));

/// The probe of one member.
#[derive(Default)]
pub(super) struct Probe {
    looking: Option<Looking>,
    /// The objects that the process before had.
    held_before: Option<HashSet<ObjectId>>,
    /// The objects have changed since a look said so.
    changed: bool,
    failures: u32,
    /// The member's connections when the probe's PIN was refused. It tries again only after one of them was replaced.
    refused: Option<Vec<u64>>,
    /// The lifetime of the current process.
    good_for: Option<Duration>,
}

struct Looking {
    token: Arc<dyn Token>,
    /// The token's objects.
    held: HashSet<ObjectId>,
    fresh_at: Instant,
}

/// The result of one look.
pub(super) struct Looked {
    /// The token's objects have changed, by others or by this pool.
    pub changed: bool,
    /// How long to rest.
    pub rest: Duration,
}

impl Probe {
    /// True if the last look found this key on the token.
    pub fn holds(&self, key: &ObjectId) -> bool {
        let looking = self.looking.as_ref();
        looking.is_some_and(|looking| looking.held.contains(key))
    }

    /// Ends its process.
    pub fn dismiss(&mut self) {
        if let Some(looking) = self.looking.take() {
            self.held_before = Some(looking.held);
        }
    }

    /// Looks once, and updates the seats that serve.
    pub fn look(&mut self, core: &Arc<Core>, serving: &[Arc<SeatConnection>]) -> Looked {
        let generations: Vec<_> = serving.iter().map(|c| c.generation).collect();
        if self.refused.as_ref() == Some(&generations) {
            return Looked {
                changed: false,
                rest: super::IDLE,
            };
        }
        let begun = clock::now();
        let rest = match self.try_look(core, serving) {
            Ok(()) => {
                self.failures = 0;
                self.refused = None;
                ((clock::now() - begun) * SHARE).clamp(REST.0, REST.1)
            }
            Err(error) => {
                let member = &serving[0].record.member;
                tracing::warn!(%member, "not looked at for what others have changed: {error}");
                self.dismiss();
                self.refused = pin_refused(&error).then_some(generations);
                self.failures += 1;
                back_off(self.failures)
            }
        };
        Looked {
            changed: std::mem::take(&mut self.changed),
            rest,
        }
    }

    fn try_look(&mut self, core: &Arc<Core>, serving: &[Arc<SeatConnection>]) -> Result<()> {
        if let Some(looking) = &mut self.looking {
            let readings = readings(core, serving);
            let seen = looking.token.look()?;
            let changed = !seen.is_empty();
            self.changed |= changed;
            if changed {
                looking.held.retain(|id| !seen.gone.contains(id));
                looking
                    .held
                    .extend(seen.made.iter().map(|object| object.id));
            }
            for (connection, reading) in serving.iter().zip(readings) {
                if changed {
                    let_it_look(connection);
                }
                // A connection that has ended meanwhile reads everything when it returns.
                let _ = core.learn(connection, reading, &seen);
            }
            if clock::now() < looking.fresh_at {
                return Ok(());
            }
        }
        self.begin_anew(core, serving)
    }

    /// Starts a fresh process, which reads everything.
    fn begin_anew(&mut self, core: &Arc<Core>, serving: &[Arc<SeatConnection>]) -> Result<()> {
        let first = &serving[0];
        let readings = readings(core, serving);
        let begun = clock::now();
        let token = first.record.seat.connector.connect_probe()?;
        if token.info().serial != first.info.serial {
            let message = "another token is in its place";
            return Err(Error::token(Kind::Environment, message));
        }
        let snapshot = token.objects()?;
        let took = clock::now() - begun;
        let held: HashSet<_> = snapshot.objects.iter().map(|object| object.id).collect();
        let before = self.looking.as_ref().map(|looking| &looking.held);
        let before = before.or(self.held_before.as_ref());
        let known = before == Some(&held);
        self.changed |= before.is_some() && !known;
        for (connection, reading) in serving.iter().zip(readings) {
            if !known {
                let_it_look(connection);
            }
            let _ = core.learn_all(connection, reading, &snapshot);
        }
        let good_for = match &self.looking {
            Some(before) if before.held != held => {
                tracing::debug!(member = %first.record.member, "a fresh process sees other keys");
                took * SHARE
            }
            Some(_) => self.good_for.map_or(FRESH.0, |before| before * 2),
            None => FRESH.0,
        };
        let good_for = good_for.clamp(REST.1, FRESH.1);
        self.good_for = Some(good_for);
        self.looking = Some(Looking {
            token,
            held,
            fresh_at: clock::now() + good_for,
        });
        Ok(())
    }
}

/// Has a serving connection read what others have added, before a request needs it. Otherwise the first request
/// would do that, and others would wait behind it. The connections do this one after the other, so the member's
/// other connections serve meanwhile. Another host does it by itself.
fn let_it_look(connection: &SeatConnection) {
    if !connection.record.seat.connector.remote() {
        // If this fails, the connection looks again when a request needs the key.
        let _ = connection.token.look();
    }
}

/// From now on, amendments are newer than what is read or seen.
fn readings<'a>(core: &'a Core, serving: &[Arc<SeatConnection>]) -> Vec<Reading<'a>> {
    serving.iter().map(|c| core.reading(&c.record)).collect()
}
