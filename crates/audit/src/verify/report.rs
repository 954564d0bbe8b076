//! The result of verification.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// The limit of listed findings; all are counted.
const MAX_LISTED: usize = 1000;

/// The result of verification.
#[derive(Debug, Default, Serialize)]
pub struct VerificationReport {
    /// The verdict.
    pub verdict: TrailVerdict,
    /// Its files, in order.
    pub files: Vec<PathBuf>,
    /// Lines read.
    pub lines: u64,
    /// Checkpoints with a good signature.
    pub checkpoints: u64,
    /// The number of the first line: 1, or more if older files are missing here.
    pub first: Option<u64>,
    /// The last line, and its time.
    pub last: Option<u64>,
    /// Its time, by the line itself.
    pub last_time: Option<String>,
    /// The last signed line.
    pub signed_to: Option<u64>,
    /// The first epoch whose seal was checked.
    pub sealed_from: Option<u64>,
    /// The findings.
    pub findings: Vec<AuditFinding>,
    /// The number of findings, which may be more than are listed.
    pub findings_total: usize,
    /// Remarks: neither wrong nor proved.
    pub remarks: Vec<AuditFinding>,
}

/// The verdict on a trail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrailVerdict {
    /// Every line is there, unchanged.
    #[default]
    Whole,
    /// The same, as far as it can be proved: see the remarks.
    Remarks,
    /// The trail was changed: see the findings.
    Altered,
}

/// One thing that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AuditFinding {
    /// The kind.
    pub kind: FindingKind,
    /// The file.
    pub file: PathBuf,
    /// The line in it, from 1; 0 for what follows its last line.
    pub line: u64,
    /// The problem, with the numbers (`seq`) of the lines.
    pub message: String,
}

/// Kinds of findings, then of remarks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// The line was changed.
    Changed,
    /// Lines are not there.
    Missing,
    /// The line is at the wrong position.
    Moved,
    /// The line was not written by this trail.
    Foreign,
    /// The checkpoint's signature is not by the given key.
    Signature,
    /// The checkpoint was made later, by somebody who had the state folder.
    Seal,
    /// The trail ends too early.
    CutOff,
    /// A start found the trail changed.
    Broken,
    /// Lines of an older hsmux, without a chain.
    Unchained,
    /// A line was not written to its end.
    Torn,
    /// A run did not end in order.
    Unclean,
    /// Lines were lost, by the trail's own account.
    Lost,
    /// The last lines are not signed yet.
    Unsigned,
}

impl VerificationReport {
    pub(super) fn find(&mut self, finding: AuditFinding) {
        self.findings_total += 1;
        self.verdict = TrailVerdict::Altered;
        if self.findings.len() < MAX_LISTED {
            self.findings.push(finding);
        }
    }

    pub(super) fn remark(&mut self, remark: AuditFinding) {
        if self.verdict == TrailVerdict::Whole {
            self.verdict = TrailVerdict::Remarks;
        }
        if self.remarks.len() < MAX_LISTED {
            self.remarks.push(remark);
        }
    }
}

impl fmt::Display for AuditFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl fmt::Display for VerificationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        if self.findings_total > self.findings.len() {
            let more = self.findings_total - self.findings.len();
            writeln!(f, "... and {more} more")?;
        }
        for remark in &self.remarks {
            writeln!(f, "{remark}")?;
        }
        let verdict = match self.verdict {
            TrailVerdict::Whole => "whole",
            TrailVerdict::Remarks => "whole, as far as that can be proved",
            TrailVerdict::Altered => "NOT as it was written",
        };
        write!(f, "the trail is {verdict}")?;
        if let (Some(first), Some(last)) = (self.first, self.last) {
            let time = self.last_time.as_deref().unwrap_or_default();
            write!(f, ": lines {first} to {last} (of {time})")?;
        }
        if let Some(signed) = self.signed_to {
            write!(f, ", signed to line {signed}")?;
        }
        writeln!(f, ", {} checkpoints", self.checkpoints)
    }
}
