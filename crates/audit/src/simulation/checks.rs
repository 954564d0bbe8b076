//! What holds after every step, and what is found in the files.

use std::time::Duration;

use super::model::EventKind;
use super::run::TrailRun;
use super::{age, on_disk};
use crate::verify::{FindingKind, TrailVerdict, TrustAnchors, verify};
use crate::{Head, OnFailure};

/// The times of `docs/audit.md`, and how late the writer may be.
const IN_FILE: Duration = Duration::from_millis(5 + 2);
const ON_DISK: Duration = Duration::from_millis(1000 + 5 + 2);

/// The files that are kept.
const FILES: usize = 3;

impl TrailRun {
    /// Whether keys may be used now.
    pub fn admits(&self) -> bool {
        self.settings.on_failure == OnFailure::Continue
            || !self.trouble.is_broken() && !self.trouble.is_full
    }

    pub fn check(&mut self) {
        let admits = self.trail().admits();
        if admits != self.admits() {
            let (broken, full) = (self.trouble.is_broken(), self.trouble.is_full);
            self.fail(&format!(
                "admits is {admits}; the trail cannot be written: {broken}, is full: {full}"
            ));
        }
        if self.has_seen() != admits {
            self.fail("observers were not told whether keys are used");
        }
        let status = self.trail().status();
        self.has_lost |= status.lost > 0;
        let told = self.trail().shared.queue.gap().is_none();
        if told && (status.lost, status.refused) != self.model.told {
            let (counted, told) = ((status.lost, status.refused), self.model.told);
            self.fail(&format!(
                "{counted:?} are lost and refused, and gaps tell {told:?}"
            ));
        }
    }

    /// Lines are in the file after 5 ms, and on disk a second later.
    pub fn check_times(&self) {
        if self.trouble.is_broken() {
            return;
        }
        let since = |then: Duration| age().saturating_sub(then.max(self.calm_since));
        if let Some(then) = self.waits_since
            && since(then) > IN_FILE
        {
            self.fail(&format!("lines wait for {:?}", since(then)));
        }
        if let Some(then) = self.unsynced_since
            && since(then) > ON_DISK
        {
            self.fail(&format!("a line is not on disk after {:?}", since(then)));
        }
    }

    /// Reads what the writer has written.
    pub fn read_lines(&mut self) {
        let opened = on_disk(|disk| std::mem::take(&mut disk.opened));
        self.logs.add(opened);
        let (_, writer) = self.daemon.as_ref().expect("it runs");
        let (file, end) = (writer.file.file.try_clone().unwrap(), writer.file.len());
        for line in self.logs.read_new(&file, end) {
            let read = self.model.read(&line);
            self.must(read);
        }
        let is_synced = on_disk(|disk| disk.synced(&file)) >= end;
        let now = age();
        self.unsynced_since = (!is_synced).then(|| self.unsynced_since.unwrap_or(now));
        self.waits_since = (self.trail().waiting() > 0).then_some(now);
        on_disk(|disk| self.logs.keep(FILES, disk));
    }

    /// The caller of this event has an answer.
    pub fn check_synced(&self, kind: EventKind, number: u64) {
        let is_on_disk = self.logs.all.iter().any(|log| {
            let synced = on_disk(|disk| disk.synced(&log.file));
            let line = log.events.iter().rfind(|(event, _)| *event == number);
            line.is_some_and(|(_, end)| *end <= synced)
        });
        if !is_on_disk {
            self.fail(&format!(
                "{kind:?} {number} is answered, and its line is not on disk"
            ));
        }
    }

    /// After a rotation and its signal.
    pub fn check_place(&self) {
        let (_, writer) = self.daemon.as_ref().expect("it runs");
        if !writer.file.is_in_place() {
            self.fail("the trail was told of a rotation, and does not write to its file");
        }
    }

    /// All faults end, and all that waits is written.
    pub fn settle(&mut self) {
        self.repair();
        let (begun, deaths) = (age(), self.deaths);
        loop {
            let is_over = self.trail().waiting() == 0
                && self.asked.is_empty()
                && !self.trouble.is_broken()
                && self.trail().shared.queue.gap().is_none();
            if is_over {
                break;
            }
            if age() > begun + Duration::from_secs(3) {
                self.fail("the disk is repaired, and lines are not written");
            }
            if !self.write() {
                self.wait_for_work();
            }
            if self.deaths > deaths {
                return;
            }
        }
        self.settle_counts();
        self.verify();
    }

    pub fn settle_counts(&mut self) {
        let status = self.trail().status();
        let settled = self.model.settle(status.lost, status.refused);
        self.must(settled);
    }

    /// The files are as they were written.
    pub fn verify(&mut self) {
        self.trace("verification", 0);
        let head = self.daemon.as_ref().map(|(trail, _)| trail.status().head);
        if let Some((_, writer)) = &self.daemon {
            let real = writer.file.file.metadata().unwrap().len();
            // A failed block that cannot be taken back is there until the next attempt.
            if real > writer.file.len() {
                return;
            }
        }
        self.verify_files(head);
    }

    pub fn verify_files(&self, head: Option<Head>) {
        let paths = self.logs.paths();
        let Some(seal) = self.seal.clone().filter(|_| !paths.is_empty()) else {
            return;
        };
        let known = TrustAnchors {
            keys: vec![self.folder.public_key().unwrap()],
            seal: Some(seal),
            head: head.or_else(|| self.folder.head().unwrap()),
            running: false,
        };
        let report = verify(&paths, known, &|_| ()).unwrap();
        let expected = report.remarks.iter().all(|remark| match remark.kind {
            FindingKind::Torn | FindingKind::Unclean => self.was_unclean,
            FindingKind::Lost => self.has_lost,
            _ => false,
        });
        if report.verdict == TrailVerdict::Altered || !expected {
            self.fail(&format!("verification finds:\n{report}"));
        }
        for log in &self.logs.all {
            let numbers = |events: &[(u64, u64)]| {
                let numbers = events.iter().map(|(event, _)| *event);
                numbers.collect::<Vec<_>>()
            };
            let (now, then) = (numbers(&log.events_now()), numbers(&log.events));
            if now != then {
                self.fail(&format!(
                    "a file has the lines {now:?}, and these were written: {then:?}"
                ));
            }
        }
    }
}
