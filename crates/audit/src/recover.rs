//! Recovery: from the end of the last run to the start of the next.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use hsmux_token::Result;
use sha2::{Digest, Sha256};

use crate::audit_folder::SavedChain;
use crate::chain::{Chain, Epoch};
use crate::line::{self, CheckpointReason, ParsedLine, StartFindings, TornLine};

/// The MAC of a checkpoint is within so many bytes of its end.
const CHECKPOINT_END: u64 = 512;

/// The search range in a file without a record, from its end.
const LAST_LINES: u64 = 1 << 20;

/// The state to continue from, and what the first checkpoint says of it.
pub struct RecoveredTrail {
    /// The end of the chain.
    pub chain: Chain,
    /// The findings.
    pub found: StartFindings,
}

/// Finds the end of the chain: the saved checkpoint, and the lines after it in its file.
pub fn recover(kept: Option<&SavedChain>, path: &Path) -> Result<RecoveredTrail> {
    let Some(kept) = kept else {
        return anew(path);
    };
    let mut recovered = RecoveredTrail {
        chain: kept.chain(),
        found: StartFindings {
            unclean: !kept.stopped,
            ..StartFindings::default()
        },
    };
    let followed = left_at(kept, path)
        .ok_or_else(|| {
            let (file, seq) = (kept.file.display(), kept.head.seq);
            format!("{file} does not have line {seq} where it was left")
        })
        .and_then(|file| {
            let followed = recovered.follow(&file, kept.offset);
            followed.map_err(|error| format!("{}: {error}", file.display()))
        });
    if let Err(why) = followed {
        recovered.found.broken = Some(why);
    }
    Ok(recovered)
}

/// Without a saved chain a new one starts after the existing lines.
fn anew(path: &Path) -> Result<RecoveredTrail> {
    let text = end_of(path, u64::MAX, LAST_LINES).unwrap_or_default();
    let last = text.split(|byte| *byte == b'\n').rev().find_map(|line| {
        let parts = line::parts(line)?;
        let parsed: ParsedLine = serde_json::from_slice(line).ok()?;
        Some((parsed.seq, parts.mac))
    });
    let broken = last.map(|(seq, _)| {
        format!("nothing is kept of the chain that ends with line {seq}; its keys are new ones")
    });
    let (seq, mac) = last.unwrap_or_default();
    Ok(RecoveredTrail {
        chain: Chain::after(seq, mac, Epoch::first()?),
        found: StartFindings {
            broken,
            ..StartFindings::default()
        },
    })
}

/// The file of the saved chain, which may have another name by now.
fn left_at(kept: &SavedChain, path: &Path) -> Option<PathBuf> {
    let named = [path, &kept.file];
    let rotated = named.iter().flat_map(|path| siblings(path));
    let mut all = named.iter().map(|path| path.to_path_buf()).chain(rotated);
    all.find(|file| ends_with_the_head(file, kept).unwrap_or(false))
}

/// Files beside it whose names begin with its own: `audit.log.1`, `audit.log-20261121`.
pub fn siblings(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Vec::new();
    };
    let name = name.as_encoded_bytes();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|other| {
            let other = other.file_name().unwrap_or_default().as_encoded_bytes();
            other.starts_with(name) && other != name
        })
        .collect();
    found.sort();
    found
}

fn ends_with_the_head(file: &Path, kept: &SavedChain) -> io::Result<bool> {
    if kept.head.seq == 0 {
        return Ok(file.metadata()?.len() >= kept.offset);
    }
    let end = end_of(file, kept.offset, CHECKPOINT_END)?;
    let end = String::from_utf8_lossy(&end);
    Ok(end.contains(&hex::encode(kept.head.mac)) && end.ends_with('\n'))
}

/// As many bytes before an offset, or before the file's end. Other files than regular ones give none: a device may
/// have no end.
fn end_of(file: &Path, offset: u64, count: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let about = file.metadata()?;
    if about.is_file() {
        let end = offset.min(about.len());
        let start = end.saturating_sub(count);
        let mut file = File::open(file)?;
        file.seek(SeekFrom::Start(start))?;
        file.take(end - start).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

impl RecoveredTrail {
    /// Reads the lines from there on, as far as they belong to the chain.
    fn follow(&mut self, file: &Path, offset: u64) -> io::Result<()> {
        if !file.metadata()?.is_file() {
            return Ok(());
        }
        let mut file = File::open(file)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            let Some(whole) = line.strip_suffix(b"\n") else {
                self.found.torn = Some(TornLine {
                    bytes: line.len() as u64,
                    sha256: Sha256::digest(&line).into(),
                });
                break;
            };
            let Some(line_is) = self.chain.accept(whole) else {
                let next = self.chain.seq + 1;
                let why = format!("what stands in place of line {next} is none of this trail's");
                self.found.broken = Some(why);
                break;
            };
            self.found.unclean = line_is != LineRole::Stop;
            line.clear();
        }
        self.found.unclean |= self.found.torn.is_some();
        Ok(())
    }
}

/// The role of a line of the chain itself.
#[derive(PartialEq, Eq)]
enum LineRole {
    Stop,
    Other,
}

impl Chain {
    /// Reads the next line, if it belongs to the chain.
    fn accept(&mut self, line: &[u8]) -> Option<LineRole> {
        let parts = line::parts(line)?;
        let parsed: ParsedLine = serde_json::from_slice(line).ok()?;
        if parsed.seq != self.seq + 1 || parts.mac != self.mac_of(parts.body) {
            return None;
        }
        (self.seq, self.mac) = (parsed.seq, parts.mac);
        let Some(checkpoint) = parsed.checkpoint else {
            return Some(LineRole::Other);
        };
        *self = Self::after(self.seq, self.mac, self.epoch.next());
        Some(match checkpoint.why {
            CheckpointReason::Stop => LineRole::Stop,
            _ => LineRole::Other,
        })
    }
}
