//! What a seat holds: read as a whole, or amended by what a change has made and taken away.
//!
//! A change costs no reading: it says itself what is there now. What is amended while a seat is being
//! read is amended once more on top of what was read, which may be older.

use std::collections::HashSet;
use std::sync::Arc;

use hsmux_token::{Error, Object, ObjectId, Result, Seen, Snapshot};

use crate::core::Core;
use crate::record::{Connection, Record};
use crate::registry::{Holder, Registry};

/// Until it is installed or dropped, amendments of the seat are kept for the one who reads.
pub(crate) struct Reading<'a> {
    core: &'a Core,
    index: usize,
    from: usize,
    installed: bool,
}

impl Core {
    /// The objects of a seat are about to be read.
    pub fn reading(&self, record: &Record) -> Reading<'_> {
        Reading {
            core: self,
            index: record.index,
            from: self.registry.lock().amendments.begin(record.index),
            installed: false,
        }
    }

    /// Reads the objects of a seat again and proves the new ones, or all of them anew.
    pub fn reread(self: &Arc<Self>, connection: &Arc<Connection>, anew: bool) -> Result<()> {
        let reading = self.reading(&connection.record);
        let snapshot = connection.token.objects().inspect_err(|error| {
            if error.ends_connection() {
                self.down(connection, error);
            }
        })?;
        self.take_stock(connection, |registry, holder| {
            reading.install(registry, holder, &snapshot, anew)
        })
    }

    /// A change is through on a seat: `made` is there now or has new attributes, `gone` is not. Reads
    /// everything only where that does not follow.
    pub fn amend(
        self: &Arc<Self>,
        record: &Arc<Record>,
        made: &[Object],
        gone: &[ObjectId],
    ) -> Result<()> {
        let index = record.index;
        let mut registry = self.registry.lock();
        let held_by_another = |id: &&ObjectId| registry.is_held_beside(&record.member, id);
        let gone_everywhere = gone.iter().filter(|id| !held_by_another(id)).copied();
        self.answers.forget(&gone_everywhere.collect::<Vec<_>>());
        registry.amendments.note(index, made, gone);
        let in_doubt = registry.in_doubt(index, made, gone);
        drop(registry);
        let Some(connection) = record.life.lock().connection.clone() else {
            return Ok(());
        };
        if in_doubt {
            return self.reread(&connection, false);
        }
        self.take_stock(&connection, |registry, holder| {
            registry.amend(index, holder, made, gone)
        })
    }

    /// Others have changed the token of a seat, as somebody beside it has seen, who began to look after
    /// `reading` did.
    pub fn learn(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        mut reading: Reading<'_>,
        seen: &Seen,
    ) -> Result<()> {
        let index = reading.index;
        let mut registry = self.registry.lock();
        let seen = reading.still_true(&registry, seen);
        registry.amendments.note(index, &seen.made, &seen.gone);
        reading.from = registry.amendments.noted(index);
        let news = registry.is_news(index, &seen);
        drop(registry);
        if !news {
            return Ok(());
        }
        self.write_down(connection, |registry, holder| {
            let seen = reading.still_true(registry, &seen);
            registry.learn(index, holder, &seen)
        })
    }

    /// All that a token holds, read by somebody beside the connection, who began before `reading`.
    pub fn learn_all(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        reading: Reading<'_>,
        snapshot: &Snapshot,
    ) -> Result<()> {
        self.write_down(connection, |registry, holder| {
            reading.install(registry, holder, snapshot, false)
        })
    }

    /// [`Self::take_stock`], and what is new is proved in the background.
    fn write_down(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        write: impl FnOnce(&mut Registry, &Holder) -> Vec<ObjectId>,
    ) -> Result<()> {
        let unproved = self.note_stock(connection, write)?;
        if !unproved.is_empty() {
            self.in_background(connection, move |core, connection| {
                core.prove(connection, &unproved);
            });
        }
        Ok(())
    }

    /// Writes down what a connection holds while it serves, and proves what is new.
    fn take_stock(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        write: impl FnOnce(&mut Registry, &Holder) -> Vec<ObjectId>,
    ) -> Result<()> {
        let unproved = self.note_stock(connection, write)?;
        self.prove(connection, &unproved);
        Ok(())
    }

    /// Says what is to be proved.
    fn note_stock(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        write: impl FnOnce(&mut Registry, &Holder) -> Vec<ObjectId>,
    ) -> Result<Vec<ObjectId>> {
        let record = &connection.record;
        let life = record.life.lock();
        if !life.serves_by(connection) {
            return Err(Error::lost(format!("{} has left", record.name)));
        }
        let (unproved, aftermath) = self.edit(|registry| write(registry, &connection.holder()));
        drop(life);
        self.carry_out(aftermath);
        self.moved();
        Ok(unproved)
    }
}

impl Reading<'_> {
    /// What was read, and what was amended meanwhile: says what is to be proved.
    pub fn install(
        mut self,
        registry: &mut Registry,
        holder: &Holder,
        snapshot: &Snapshot,
        rejoined: bool,
    ) -> Vec<ObjectId> {
        let mut unproved = registry.install(self.index, holder, snapshot, rejoined);
        for (made, gone) in registry.amendments.since(self.index, self.from) {
            unproved.extend(registry.amend(self.index, holder, &made, &gone));
        }
        registry.amendments.end(self.index);
        self.installed = true;
        unproved.sort_unstable();
        unproved.dedup();
        unproved
    }

    /// What was seen, but for what was amended meanwhile: a look does not say whether it came before that.
    /// A key that is deleted while somebody looks would rise again.
    fn still_true(&self, registry: &Registry, seen: &Seen) -> Seen {
        let amended: HashSet<ObjectId> = registry
            .amendments
            .since(self.index, self.from)
            .into_iter()
            .flat_map(|(made, gone)| made.into_iter().map(|object| object.id).chain(gone))
            .collect();
        let mut seen = seen.clone();
        seen.made.retain(|object| !amended.contains(&object.id));
        seen.gone.retain(|id| !amended.contains(id));
        seen
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if !self.installed {
            self.core.registry.lock().amendments.end(self.index);
        }
    }
}
