//! Checks of single lines: changed, missing, moved, or foreign.

use std::collections::{BTreeMap, HashSet};

use super::report::FindingKind;
use super::segment::UncheckedLine;
use super::{TrailVerifier, VerifiedEnd};
use crate::chain::hmac;
use crate::line::{self, Mac, VERSION};

/// Lines between two checkpoints.
pub struct LineCheck<'a> {
    pub held: &'a [UncheckedLine],
    /// The end of the verified lines before them, if it is known.
    pub edge: Option<&'a VerifiedEnd>,
    /// The key of their MACs; without it only the numbers are checked.
    pub key: Option<&'a Mac>,
    /// The number of the checkpoint after them, and the MAC that it follows.
    pub end: Option<(u64, Mac)>,
    /// The line that findings about the end name.
    pub last: &'a UncheckedLine,
}

impl TrailVerifier {
    /// Checks the lines of a segment.
    pub(super) fn walk(&mut self, segment: &LineCheck<'_>) {
        let LineCheck {
            held,
            edge,
            key,
            end,
            last,
        } = *segment;
        let first = held
            .first()
            .map(UncheckedLine::seq)
            .or(end.map(|(seq, _)| seq));
        let before = edge.map_or_else(|| first.unwrap_or(1).saturating_sub(1), |edge| edge.seq);
        self.report.first.get_or_insert(before + 1);
        let placed = self.place(held, before, end.map(|(seq, _)| seq));
        let mut expected = before + 1;
        // The possible MACs of the line before, if that was changed.
        let mut prevs: Vec<Mac> = edge.map(|edge| edge.mac).into_iter().collect();
        for (seq, line) in &placed {
            if *seq > expected {
                self.missing(expected, seq - 1, line);
                prevs.clear();
            }
            prevs = self.check(line, *seq, key, &prevs);
            expected = seq + 1;
        }
        let Some((end, prev)) = end else {
            return;
        };
        if end > expected {
            self.missing(expected, end - 1, last);
        } else if end < expected {
            let message = format!("line {end} stands in the place of line {expected}");
            self.find(FindingKind::Foreign, last, message);
        } else if key.is_some() && !prevs.is_empty() && !prevs.contains(&prev) {
            let message = format!(
                "some of the lines {} to {} were changed: they do not lead to the checkpoint that \
                 is signed",
                before + 1,
                end - 1
            );
            self.find(FindingKind::Changed, last, message);
        }
    }

    /// Checks the order of numbers: finds duplicates, wrong order, and text that is no line.
    fn place<'h>(
        &mut self,
        held: &'h [UncheckedLine],
        before: u64,
        end: Option<u64>,
    ) -> BTreeMap<u64, &'h UncheckedLine> {
        let numbers: HashSet<u64> = held.iter().map(UncheckedLine::seq).collect();
        let mut placed = BTreeMap::new();
        let mut expected = before + 1;
        for (index, line) in held.iter().enumerate() {
            let next = held.get(index + 1);
            let next = next.map_or(end, |next| next.parsed.as_ref().map(|parsed| parsed.seq));
            let own = line.parsed.as_ref().map(|parsed| parsed.seq);
            // A changed line still fills its place, even with another number.
            let fills = next == Some(expected + 1) && !numbers.contains(&expected);
            let seq = if fills { Some(expected) } else { own };
            let inside = |seq: &u64| *seq > before && end.is_none_or(|end| *seq < end);
            let Some(seq) = seq.filter(inside).filter(|seq| !placed.contains_key(seq)) else {
                let message = match own {
                    None => "not a line of this trail".to_owned(),
                    Some(seq) => format!("line {seq} does not belong here, or stands here again"),
                };
                self.find(FindingKind::Foreign, line, message);
                continue;
            };
            placed.insert(seq, line);
            if seq < expected {
                let message = format!("line {seq} stands after line {}", expected - 1);
                self.find(FindingKind::Moved, line, message);
            }
            expected = expected.max(seq + 1);
        }
        placed
    }

    /// Checks that the line follows one with one of these MACs; returns the MACs that the next may follow.
    fn check(
        &mut self,
        line: &UncheckedLine,
        seq: u64,
        key: Option<&Mac>,
        prevs: &[Mac],
    ) -> Vec<Mac> {
        self.seen(line, seq);
        let Some((parts, parsed)) = line::parts(&line.text).zip(line.parsed.as_ref()) else {
            self.find(
                FindingKind::Changed,
                line,
                format!("line {seq} was changed: it is no line any more"),
            );
            return Vec::new();
        };
        if let Some(gap) = parsed.gap.as_ref().filter(|gap| gap.lost > 0) {
            let message = format!(
                "{} lines were lost after {}, as line {seq} says: {}",
                gap.lost, gap.since, gap.why
            );
            self.remark(FindingKind::Lost, line, message);
        }
        let Some(key) = key else {
            return Vec::new();
        };
        let mac = |prev: &Mac| hmac(key, &[prev, parts.body]);
        let own: Vec<Mac> = prevs.iter().map(mac).collect();
        if parsed.v != VERSION {
            let message = format!(
                "line {seq} has version {}: a newer hsmux can verify it",
                parsed.v
            );
            self.find(FindingKind::Foreign, line, message);
        } else if prevs.is_empty() || own.contains(&parts.mac) && parsed.seq == seq {
            return vec![parts.mac];
        } else {
            self.find(
                FindingKind::Changed,
                line,
                format!("line {seq} was changed"),
            );
        }
        // The next line shows if the MAC was changed, or something else.
        own.into_iter().chain([parts.mac]).collect()
    }

    fn missing(&mut self, from: u64, to: u64, before: &UncheckedLine) {
        let message = if from == to {
            format!("line {from} is missing before this one")
        } else {
            format!("lines {from} to {to} are missing before this one")
        };
        self.find(FindingKind::Missing, before, message);
    }
}
