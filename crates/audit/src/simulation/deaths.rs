//! Starts, deaths and orderly ends of the daemon.

use std::collections::BTreeSet;

use super::disk::DiskFaults;
use super::log_files::{LogFile, lines};
use super::model::is_possible;
use super::on_disk;
use super::run::{TrailRun, Trouble};
use crate::Trail;

/// What a file has before a death.
struct Before {
    events: Vec<u64>,
    /// So many of them are on disk.
    on_disk: usize,
    /// Events of blocks that were not written to their end, or taken back. Their lines may be there all the same, also
    /// if the caller has an error: what takes them back may itself have failed, or not be on disk yet.
    half_written: BTreeSet<u64>,
}

impl Before {
    fn of(log: &LogFile, power_fails: bool) -> Self {
        let synced = on_disk(|disk| disk.synced(&log.file));
        let is_on_disk = |(_, end): &&(u64, u64)| !power_fails || *end <= synced;
        let rest = lines(&log.bytes(log.read_to.min(log.len()), log.len()), 0);
        let taken_back = on_disk(|disk| lines(disk.taken_back(&log.file), 0));
        let half_written = rest.iter().chain(&taken_back);
        Self {
            events: log.events.iter().map(|(event, _)| *event).collect(),
            on_disk: log.events.iter().take_while(is_on_disk).count(),
            half_written: half_written.filter_map(|line| line.event).collect(),
        }
    }
}

impl TrailRun {
    /// The daemon starts, perhaps after several attempts.
    pub fn start(&mut self) {
        loop {
            if self.step > 0 && self.random.one_in(6) {
                let operations = self.random.below(8);
                on_disk(|disk| disk.dies_in = Some(operations));
            }
            match Trail::with_writer(&self.settings) {
                Ok(daemon) => {
                    self.daemon = Some(daemon);
                    break;
                }
                Err(_) if on_disk(|disk| disk.is_dead) => self.crash(&[]),
                Err(error) if on_disk(|disk| disk.faults == DiskFaults::default()) => {
                    self.fail(&format!("the trail does not open: {error}"));
                }
                Err(_) => self.repair(),
            }
        }
        self.trace("start", 0);
        if self.seal.is_none() {
            self.seal = Some(self.folder.seal_key().unwrap());
        }
        self.trouble = Trouble::default();
        (self.waits_since, self.unsynced_since) = (None, None);
        let opened = on_disk(|disk| std::mem::take(&mut disk.opened));
        self.logs.add(opened);
        self.logs.read_again();
        self.observe();
        self.turn(|writer| {
            writer.begin();
            true
        });
    }

    /// The daemon dies: its memory is gone. So is what the machine has not synced, if that dies as well.
    pub fn die(&mut self) {
        let answered: Vec<_> = self
            .asked
            .iter()
            .filter(|asked| asked.kind.is_some() && matches!(asked.answer.try_recv(), Ok(Ok(()))))
            .map(|asked| asked.number)
            .collect();
        self.daemon = None;
        self.end_clients();
        self.crash(&answered);
        self.start();
    }

    /// These events were answered in the turn in which the daemon has died.
    fn crash(&mut self, answered: &[u64]) {
        self.deaths += 1;
        self.was_unclean = true;
        let power_fails = self.random.one_in(2);
        self.trace("death", u64::from(power_fails));
        let opened = on_disk(|disk| std::mem::take(&mut disk.opened));
        self.logs.add(opened);
        let before: Vec<_> = self
            .logs
            .all
            .iter()
            .map(|log| Before::of(log, power_fails))
            .collect();
        let files = self.logs.handles();
        on_disk(|disk| {
            if power_fails {
                disk.cut_power(&files);
            }
            disk.restart(&files, power_fails);
        });
        self.logs.read_again();
        for (log, before) in self.logs.all.iter().zip(&before) {
            let now: Vec<_> = log.events.iter().map(|(event, _)| *event).collect();
            if !is_possible(&now, &before.events, before.on_disk, &before.half_written) {
                let last = |events: &[u64]| events[events.len().saturating_sub(5)..].to_vec();
                self.fail(&format!(
                    "a file had {} events, {} of them on disk, the last {:?}; after a death it has {}: {:?}",
                    before.events.len(),
                    before.on_disk,
                    last(&before.events),
                    now.len(),
                    last(&now)
                ));
            }
        }
        self.logs.all.retain(|log| log.has_name);
        let all = self.logs.all.iter().flat_map(|log| &log.events);
        let all: Vec<_> = all.map(|(event, _)| *event).collect();
        if let Some(event) = answered.iter().find(|event| !all.contains(event)) {
            self.fail(&format!(
                "event {event} was answered, and has no line after a death"
            ));
        }
        let ended = self.model.end(all.into_iter());
        self.must(ended);
        self.verify_files(None);
    }

    /// The daemon stops in order. False if it dies meanwhile: then it runs again.
    pub fn stop(&mut self) -> bool {
        self.trace("stop", 0);
        let deaths = self.deaths;
        self.trail().shared.queue.stop();
        for turn in 0.. {
            if turn > 100 {
                self.fail("the daemon does not end");
            }
            if !self.write() {
                break;
            }
        }
        if self.deaths > deaths {
            return false;
        }
        if !self.asked.is_empty() {
            self.fail("the daemon ends, and a caller has no answer");
        }
        // Without its last line the end is none in order.
        self.was_unclean |= self.trouble.is_broken();
        if !self.trouble.is_broken() {
            self.settle_counts();
            let is_noted = self.folder.load().unwrap().is_some_and(|kept| kept.stopped);
            if !is_noted {
                self.fail("the daemon ends in order, and the next start does not know that");
            }
        }
        self.daemon = None;
        self.end_clients();
        let events = self.logs.all.iter().flat_map(|log| &log.events);
        let ended = self.model.end(events.map(|(event, _)| *event));
        self.must(ended);
        self.verify_files(None);
        true
    }
}
