//! The lines between two checkpoints.

use sha2::{Digest, Sha256};

use super::TrailVerifier;
use super::VerifiedEnd;
use super::line_check::LineCheck;
use super::report::{AuditFinding, FindingKind};
use crate::chain::{Epoch, hmac};
use crate::line::{self, Checkpoint, CheckpointReason, Mac, ParsedLine, TornLine};

/// A line that waits for its checkpoint.
pub struct UncheckedLine {
    /// Its file, as an index in the report.
    pub file: usize,
    /// Its line there, from 1.
    pub line: u64,
    pub text: Vec<u8>,
    /// True if its newline is missing.
    pub broken_off: bool,
    /// `None` if it does not have the form of a line.
    pub parsed: Option<ParsedLine>,
}

impl TrailVerifier {
    /// Checks the lines up to a checkpoint, the last one held; the next segment begins there.
    pub(super) fn close(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        let Some(last) = held.pop() else {
            return;
        };
        let Some((seq, checkpoint)) = last.checkpoint() else {
            return;
        };
        let checkpoint = checkpoint.clone();
        let mac = self.signed(&last, &checkpoint);
        self.say_found(&mut held, &last, &checkpoint);
        let begins = held.is_empty()
            && matches!(
                checkpoint.why,
                CheckpointReason::Start | CheckpointReason::Open
            );
        if self.edge.is_none() && !begins {
            let message = "the beginning of the file is missing".into();
            self.find(FindingKind::Missing, held.first().unwrap_or(&last), message);
        }
        let edge = self.edge.clone();
        let skips = edge
            .as_ref()
            .is_some_and(|edge| edge.epoch != checkpoint.epoch);
        if skips && mac.is_some() && checkpoint.found.broken.is_none() {
            let message = format!("checkpoints before line {seq} are missing");
            self.find(FindingKind::Missing, &last, message);
        }
        self.walk(&LineCheck {
            held: &held,
            edge: edge.as_ref(),
            key: mac.filter(|_| !skips).map(|_| &checkpoint.key),
            end: mac.map(|_| (seq, checkpoint.prev)),
            last: &last,
        });
        self.seen(&last, seq);
        let mac = mac.or_else(|| line::parts(&last.text).map(|parts| parts.mac));
        self.edge = mac.map(|mac| VerifiedEnd {
            seq,
            mac,
            epoch: checkpoint.epoch + 1,
        });
    }

    /// Lines after the last checkpoint.
    pub(super) fn tail(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        let unfinished = held.pop_if(|last| last.broken_off);
        let is_being_written = |line: &UncheckedLine| {
            self.known.running && self.formed.is_none_or(|file| file == line.file)
        };
        let mut torn: Vec<_> = unfinished
            .into_iter()
            .filter(|line| !is_being_written(line))
            .collect();
        // A start ends a torn line with a newline, before it seals it.
        while let Some(line) = held.pop_if(|line| line::is_torn(&line.text)) {
            torn.push(line);
        }
        if let Some(first) = torn.last() {
            let message = format!(
                "{}: the daemon, or the machine, ended while it wrote; the next start \
                 notes it",
                not_written(torn.len())
            );
            self.remark(FindingKind::Torn, first, message);
        }
        let (Some(first), Some(last)) = (held.first(), held.last()) else {
            return;
        };
        let edge = self.edge.clone();
        let epoch = edge.as_ref().and_then(|edge| self.epoch(edge.epoch));
        let lines = epoch.map(|epoch| epoch.lines());
        if lines.is_none() {
            let count = held.len();
            let message = format!(
                "{count} lines from here on are not signed: no checkpoint comes after them"
            );
            self.remark(FindingKind::Unsigned, first, message);
        }
        self.walk(&LineCheck {
            held: &held,
            edge: edge.as_ref(),
            key: lines.as_deref(),
            end: None,
            last,
        });
    }

    /// The checkpoint's MAC, if its signature is good.
    fn signed(&mut self, last: &UncheckedLine, checkpoint: &Checkpoint) -> Option<Mac> {
        let parts = line::parts(&last.text)?;
        let own = hmac(&checkpoint.key, &[&checkpoint.prev, parts.body]);
        let signed = parts.signed.as_ref().filter(|signed| {
            let keys = &self.known.keys;
            own == parts.mac
                && keys
                    .iter()
                    .any(|key| key.verifies(signed.before, &signed.sig))
        });
        let seq = last.seq();
        let Some(signed) = signed else {
            let message = format!(
                "line {seq} is a checkpoint that the given key has not signed: it was changed, or \
                 another key signs this trail; it and the lines since the one before are not proved"
            );
            self.find(FindingKind::Signature, last, message);
            return None;
        };
        let epoch = self.epoch(checkpoint.epoch);
        if epoch.is_some_and(|epoch| {
            epoch.seal(signed.sealed) != signed.seal || *epoch.lines() != checkpoint.key
        }) {
            let message = format!(
                "line {seq} is a checkpoint with a good signature and a wrong seal: who made it had \
                 the key that signs, but not the secret of that time"
            );
            self.find(FindingKind::Seal, last, message);
        }
        self.report.checkpoints += 1;
        self.report.signed_to = Some(seq);
        Some(parts.mac)
    }

    /// Checks what the checkpoint of a start says of the run before.
    fn say_found(
        &mut self,
        held: &mut Vec<UncheckedLine>,
        last: &UncheckedLine,
        checkpoint: &Checkpoint,
    ) {
        let found = &checkpoint.found;
        if let Some(torn) = &found.torn
            && let Some(lines) = take_torn(held, torn).or_else(|| self.take_part(held, torn))
        {
            let message = format!(
                "{}: the daemon, or the machine, ended while it wrote",
                not_written(lines.len())
            );
            self.remark(FindingKind::Torn, &lines[0], message);
        }
        if found.unclean {
            let message = format!(
                "the daemon started here after a run without an orderly end: lines after {} may be \
                 lost, and whether they were cut off cannot be told",
                last.seq().saturating_sub(1)
            );
            self.remark(FindingKind::Unclean, last, message);
        }
        if let Some(broken) = &found.broken {
            let message = format!("the daemon did not find the trail as it was left: {broken}");
            self.find(FindingKind::Broken, last, message);
        }
    }

    /// The part of a torn line that is in the first file. Its beginning is in an older one, which is not here.
    fn take_part(
        &self,
        held: &mut Vec<UncheckedLine>,
        torn: &TornLine,
    ) -> Option<Vec<UncheckedLine>> {
        let mut bytes = 0;
        let before = held.iter().rposition(|line| {
            bytes += line.text.len() as u64 + 1;
            bytes > torn.bytes || !line::is_torn(&line.text)
        });
        let first = before.map_or(0, |last| last + 1);
        let is_part = self.edge.is_none() && first < held.len();
        is_part.then(|| held.split_off(first))
    }

    pub(super) fn seen(&mut self, line: &UncheckedLine, seq: u64) {
        if self.known.head.as_ref().is_some_and(|head| head.seq == seq) {
            self.head = line::parts(&line.text).map(|parts| parts.mac);
        }
        if self.report.last.is_none_or(|last| seq > last) {
            self.report.last = Some(seq);
            self.report.last_time = line.parsed.as_ref().map(|parsed| parsed.time.clone());
        }
    }

    /// The secret of an epoch, if that of an earlier or the same one is known.
    fn epoch(&mut self, number: u64) -> Option<Epoch> {
        let known = self.secret.as_ref().and_then(|epoch| epoch.at(number));
        if known.is_some() {
            self.secret.clone_from(&known);
        }
        known
    }

    pub(super) fn find(&mut self, kind: FindingKind, at: &UncheckedLine, message: String) {
        let finding = self.finding(kind, at, message);
        self.report.find(finding);
    }

    pub(super) fn remark(&mut self, kind: FindingKind, at: &UncheckedLine, message: String) {
        let remark = self.finding(kind, at, message);
        self.report.remark(remark);
    }

    fn finding(&self, kind: FindingKind, at: &UncheckedLine, message: String) -> AuditFinding {
        AuditFinding {
            kind,
            file: self.report.files[at.file].clone(),
            line: at.line,
            message,
        }
    }
}

impl UncheckedLine {
    pub fn seq(&self) -> u64 {
        self.parsed.as_ref().map_or(0, |parsed| parsed.seq)
    }

    fn checkpoint(&self) -> Option<(u64, &Checkpoint)> {
        let parsed = self.parsed.as_ref()?;
        Some((parsed.seq, parsed.checkpoint.as_ref()?))
    }
}

/// What a message says of torn lines.
fn not_written(count: usize) -> String {
    match count {
        1 => "the line was not written to its end".to_owned(),
        _ => format!("{count} lines from here on were not written to their ends"),
    }
}

/// Takes the torn line that a start has found off the end, and those of starts that crashed before they had sealed it.
fn take_torn(held: &mut Vec<UncheckedLine>, torn: &TornLine) -> Option<Vec<UncheckedLine>> {
    let mut bytes = 0;
    let lines = held.iter().rposition(|line| {
        bytes += line.text.len() as u64 + 1;
        bytes > torn.bytes
    })?;
    let texts: Vec<_> = held[lines..].iter().map(|line| &line.text[..]).collect();
    let digest: Mac = Sha256::digest(texts.join(&b'\n')).into();
    if bytes - 1 != torn.bytes || digest != torn.sha256 {
        return None;
    }
    Some(held.split_off(lines))
}
