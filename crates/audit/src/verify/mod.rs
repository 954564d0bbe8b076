//! Verification of a trail.
//!
//! A checkpoint discloses the key of the lines before it. Lines are held back until the next checkpoint, then checked
//! [together](segment).

mod line_check;
mod report;
mod segment;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use hsmux_token::{Error, Kind as ErrorKind, Result};

pub use crate::recover::siblings as rotated;
pub use report::{AuditFinding, FindingKind, TrailVerdict, VerificationReport};

use crate::audit_folder::Head;
use crate::chain::Epoch;
use crate::keys::{PublicKey, SealKey};
use crate::line::{self, Mac, ParsedLine};
use segment::UncheckedLine;

/// Facts about a trail that do not come from its files.
#[derive(Default)]
pub struct TrustAnchors {
    /// The keys that sign it: one, or several where its state folder was lost once.
    pub keys: Vec<PublicKey>,
    /// A secret of this trail: it also verifies the seals from its epoch on, and lines that no checkpoint has signed
    /// yet.
    pub seal: Option<SealKey>,
    /// The line that must exist, by the state folder or the running daemon.
    pub head: Option<Head>,
    /// True if a daemon writes it now: its last line may then be incomplete.
    pub running: bool,
}

/// Verifies files in the order of their lines, whatever the order of their names. `progress` gets the number of bytes
/// read.
pub fn verify(
    files: &[PathBuf],
    known: TrustAnchors,
    progress: &dyn Fn(u64),
) -> Result<VerificationReport> {
    let mut sorted = files
        .iter()
        .map(|file| Ok((first_line(file)?, file)))
        .collect::<Result<Vec<_>>>()?;
    sorted.sort_by_key(|(seq, _)| *seq);
    let mut verifier = TrailVerifier::new(known);
    for (_, file) in sorted {
        verifier.read(file, progress)?;
    }
    Ok(verifier.finish())
}

/// The lines of one file.
pub(crate) fn verify_lines(
    lines: impl BufRead,
    file: &Path,
    known: TrustAnchors,
) -> Result<VerificationReport> {
    let mut verifier = TrailVerifier::new(known);
    verifier.read_lines(lines, file, &|_| {})?;
    Ok(verifier.finish())
}

/// The number of the first line that has one. Files without a chain are older, unless one has a line that was begun and
/// not written to its end.
fn first_line(file: &Path) -> Result<Option<u64>> {
    let mut lines = open(file)?;
    let mut line = Vec::new();
    let mut is_begun = false;
    while read(&mut lines, &mut line, file)? > 0 {
        let whole = line.strip_suffix(b"\n").unwrap_or(&line);
        is_begun |= line::is_torn(whole);
        if let (Some(_), Ok(parsed)) = (line::parts(whole), parse(whole)) {
            return Ok(Some(parsed.seq));
        }
    }
    Ok(is_begun.then_some(u64::MAX))
}

fn open(file: &Path) -> Result<BufReader<File>> {
    let open = File::open(file).map_err(|e| unreadable(file, &e))?;
    if !open.metadata().is_ok_and(|about| about.is_file()) {
        let why = std::io::Error::other("not a file that can be read twice");
        return Err(unreadable(file, &why));
    }
    Ok(BufReader::with_capacity(1 << 18, open))
}

fn read(lines: &mut impl BufRead, line: &mut Vec<u8>, file: &Path) -> Result<usize> {
    line.clear();
    lines
        .read_until(b'\n', line)
        .map_err(|e| unreadable(file, &e))
}

pub(crate) fn parse(line: &[u8]) -> serde_json::Result<ParsedLine> {
    serde_json::from_slice(line)
}

/// Parses a line of a chain: checkpoints have a signature, and no other lines have one.
pub(crate) fn parse_chained(text: &[u8]) -> Option<ParsedLine> {
    let (parsed, parts) = (parse(text).ok()?, line::parts(text)?);
    (parts.signed.is_some() == parsed.checkpoint.is_some()).then_some(parsed)
}

fn unreadable(file: &Path, why: &std::io::Error) -> Error {
    let message = format!("audit trail {}: {why}", file.display());
    Error::request(ErrorKind::Environment, message)
}

/// The end of the verified part.
#[derive(Clone)]
struct VerifiedEnd {
    seq: u64,
    mac: Mac,
    /// The epoch that begins here.
    epoch: u64,
}

struct TrailVerifier {
    known: TrustAnchors,
    report: VerificationReport,
    /// The secret of the newest epoch that was looked at.
    secret: Option<Epoch>,
    /// The last checkpoint; `None` before the first.
    edge: Option<VerifiedEnd>,
    /// Lines since then.
    held: Vec<UncheckedLine>,
    /// The file of the last whole line, as an index in the report.
    formed: Option<usize>,
    /// The position of the last line, for findings about the end.
    at: (PathBuf, u64),
    /// Lines of an older hsmux.
    unchained: u64,
    /// The MAC of the line with the head's number.
    head: Option<Mac>,
}

impl TrailVerifier {
    fn new(known: TrustAnchors) -> Self {
        let report = VerificationReport {
            sealed_from: known.seal.as_ref().map(SealKey::epoch),
            ..VerificationReport::default()
        };
        Self {
            secret: known.seal.as_ref().map(|seal| seal.0.clone()),
            known,
            report,
            edge: None,
            held: Vec::new(),
            formed: None,
            at: (PathBuf::new(), 0),
            unchained: 0,
            head: None,
        }
    }

    fn read(&mut self, file: &Path, progress: &dyn Fn(u64)) -> Result<()> {
        self.read_lines(open(file)?, file, progress)
    }

    fn read_lines(
        &mut self,
        mut lines: impl BufRead,
        file: &Path,
        progress: &dyn Fn(u64),
    ) -> Result<()> {
        self.report.files.push(file.to_owned());
        let mut line = Vec::new();
        self.at = (file.to_owned(), 0);
        while read(&mut lines, &mut line, file)? > 0 {
            progress(line.len() as u64);
            self.at.1 += 1;
            self.report.lines += 1;
            match line.strip_suffix(b"\n") {
                Some(whole) => self.line(whole, false),
                None => self.line(&line, true),
            }
        }
        Ok(())
    }

    fn line(&mut self, text: &[u8], broken_off: bool) {
        let parsed = parse_chained(text);
        if parsed.is_some() && !broken_off {
            self.formed = Some(self.report.files.len() - 1);
        }
        let is_older = parsed.is_none() && !line::is_torn(text);
        if self.edge.is_none() && self.held.is_empty() && is_older {
            self.unchained += 1;
            return;
        }
        let closes = parsed
            .as_ref()
            .is_some_and(|line| line.checkpoint.is_some() && !broken_off);
        self.held.push(UncheckedLine {
            file: self.report.files.len() - 1,
            line: self.at.1,
            text: text.to_owned(),
            broken_off,
            parsed,
        });
        if closes {
            self.close();
        }
    }

    fn finish(mut self) -> VerificationReport {
        self.tail();
        self.say_unchained();
        if self.report.checkpoints == 0 && self.report.findings.is_empty() {
            self.at_the_end(
                FindingKind::CutOff,
                "there is no checkpoint of a trail".into(),
            );
        }
        self.check_head();
        self.report
    }

    /// Lines before the first of a chain are of an older hsmux, if the chain begins there.
    fn say_unchained(&mut self) {
        let lines = self.unchained;
        if lines == 0 {
            return;
        }
        let at = |kind, message| AuditFinding {
            kind,
            file: self.report.files.first().cloned().unwrap_or_default(),
            line: 1,
            message,
        };
        if self.report.first == Some(1) {
            let message = format!("{lines} lines are older than the chain: nothing proves them");
            self.report.remark(at(FindingKind::Unchained, message));
        } else {
            let message = format!("{lines} lines at the beginning are not this trail's");
            self.report.find(at(FindingKind::Foreign, message));
        }
    }

    fn check_head(&mut self) {
        let Some(head) = self.known.head.clone().filter(|head| head.seq > 0) else {
            return;
        };
        let last = self.report.last.unwrap_or(0);
        if last < head.seq {
            let message = format!(
                "the trail is cut off: lines {} to {} were written and are not there",
                last + 1,
                head.seq
            );
            self.at_the_end(FindingKind::CutOff, message);
        } else if self.head != Some(head.mac) {
            let message = format!(
                "line {} is not the one that the daemon has written",
                head.seq
            );
            self.at_the_end(FindingKind::Changed, message);
        }
    }

    fn at_the_end(&mut self, kind: FindingKind, message: String) {
        let file = self.at.0.clone();
        self.report.find(AuditFinding {
            kind,
            file,
            line: 0,
            message,
        });
    }
}
