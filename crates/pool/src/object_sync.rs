//! Keeps the registry equal to the objects of each seat: reads them all, or applies the result of a change.
//!
//! A change needs no reading: its result says which objects it made and removed. An amendment during a reading is
//! applied again to the result of the reading, which may be older.

use std::collections::HashSet;
use std::sync::Arc;

use hsmux_token::{Error, Object, ObjectChanges, ObjectId, Result, Snapshot};

use crate::core::Core;
use crate::record::{Record, SeatConnection};
use crate::registry::{Holder, Registry};

/// A reading of a seat's objects. Amendments of the seat are kept until this is installed or dropped.
pub(crate) struct Reading<'a> {
    core: &'a Core,
    index: usize,
    from: usize,
    installed: bool,
}

impl Core {
    /// Begins a reading. Call this before the objects are read.
    pub fn reading(&self, record: &Record) -> Reading<'_> {
        Reading {
            core: self,
            index: record.index,
            from: self.registry.lock().amendments.begin(record.index),
            installed: false,
        }
    }

    /// Reads the objects of a seat again. Proves the new ones or, with `anew`, all of them.
    pub fn reread(self: &Arc<Self>, connection: &Arc<SeatConnection>, anew: bool) -> Result<()> {
        let reading = self.reading(&connection.record);
        let snapshot = connection.token.objects().inspect_err(|error| {
            if error.ends_connection() {
                self.down(connection, error);
            }
        })?;
        self.sync(connection, |registry, holder| {
            reading.install(registry, holder, &snapshot, anew)
        })
    }

    /// Applies a change to a seat: `made` is there now or has new attributes, `gone` is not. Reads everything only if
    /// the result is in doubt.
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
        self.sync(&connection, |registry, holder| {
            registry.amend(index, holder, made, gone)
        })
    }

    /// Applies changes by others, which a probe has seen. The probe has to look after `reading` began.
    pub fn learn(
        self: &Arc<Self>,
        connection: &Arc<SeatConnection>,
        mut reading: Reading<'_>,
        seen: &ObjectChanges,
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
        self.sync_in_background(connection, |registry, holder| {
            let seen = reading.still_true(registry, &seen);
            registry.learn(index, holder, &seen)
        })
    }

    /// Applies all objects of a token, which a probe has read after `reading` began.
    pub fn learn_all(
        self: &Arc<Self>,
        connection: &Arc<SeatConnection>,
        reading: Reading<'_>,
        snapshot: &Snapshot,
    ) -> Result<()> {
        self.sync_in_background(connection, |registry, holder| {
            reading.install(registry, holder, snapshot, false)
        })
    }

    /// [`Self::sync`], with the proofs in the background.
    fn sync_in_background(
        self: &Arc<Self>,
        connection: &Arc<SeatConnection>,
        write: impl FnOnce(&mut Registry, &Holder) -> Vec<ObjectId>,
    ) -> Result<()> {
        let unproved = self.sync_unproved(connection, write)?;
        if !unproved.is_empty() {
            self.in_background(connection, move |core, connection| {
                core.prove(connection, &unproved);
            });
        }
        Ok(())
    }

    /// Updates the registry of a serving connection and proves new objects.
    fn sync(
        self: &Arc<Self>,
        connection: &Arc<SeatConnection>,
        write: impl FnOnce(&mut Registry, &Holder) -> Vec<ObjectId>,
    ) -> Result<()> {
        let unproved = self.sync_unproved(connection, write)?;
        self.prove(connection, &unproved);
        Ok(())
    }

    /// Updates the registry. Answers the objects to prove.
    fn sync_unproved(
        self: &Arc<Self>,
        connection: &Arc<SeatConnection>,
        write: impl FnOnce(&mut Registry, &Holder) -> Vec<ObjectId>,
    ) -> Result<Vec<ObjectId>> {
        let record = &connection.record;
        let life = record.life.lock();
        if !life.serves_by(connection) {
            return Err(Error::lost(format!("{} has left", record.name)));
        }
        let (unproved, update) = self.edit(|registry| write(registry, &connection.holder()));
        drop(life);
        self.carry_out(update);
        self.moved();
        Ok(unproved)
    }
}

impl Reading<'_> {
    /// Installs the objects read and the amendments since. Answers the objects to prove.
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

    /// `seen` without the objects that were amended meanwhile. The look may be older than the amendment: a key that is
    /// deleted during a look would come back.
    fn still_true(&self, registry: &Registry, seen: &ObjectChanges) -> ObjectChanges {
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
