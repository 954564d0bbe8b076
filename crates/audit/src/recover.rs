//! Recovery: from the end of the last run to the start of the next.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use hsmux_token::Result;
use sha2::{Digest, Sha256};

use crate::audit_folder::SavedChain;
use crate::chain::{Chain, Epoch};
use crate::disk;
use crate::line::{self, Checkpoint, CheckpointReason, ParsedLine, StartFindings, TornLine};

/// The MAC of a checkpoint is within so many bytes of its end.
const CHECKPOINT_END: u64 = 512;

/// The search range in a file without a record, from its end.
const LAST_LINES: u64 = 1 << 20;

/// A line is not longer: what is, is none.
const LONGEST: u64 = 1 << 20;

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
        .and_then(|file| recovered.follow(&file, kept.offset, path));
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
    // The line after it has the same bytes in its field `prev`.
    let mac = format!("\"mac\":\"{}\"", hex::encode(kept.head.mac));
    Ok(end.contains(&mac) && end.ends_with('\n'))
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

/// The first line of a file, without its newline; as much of it as a line may have.
fn first_line(file: &Path) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let about = file.metadata()?;
    if about.is_file() {
        let most = about.len().min(LONGEST);
        BufReader::new(File::open(file)?.take(most)).read_until(b'\n', &mut line)?;
    }
    line.pop_if(|last| *last == b'\n');
    Ok(line)
}

impl RecoveredTrail {
    /// Reads the lines from there on, as far as they belong to the chain, also those of files that began later.
    fn follow(&mut self, file: &Path, offset: u64, path: &Path) -> Result<(), String> {
        let mut rest = TornRest::default();
        let mut read = |recovered: &mut Self, file: &Path, offset| {
            let read = recovered.read(file, offset, &mut rest);
            let read = read.map_err(|error| format!("{}: {error}", file.display()));
            read.and_then(|why| why.map_or(Ok(()), Err))
        };
        read(self, file, offset)?;
        let mut later = siblings(path);
        later.push(path.to_owned());
        later.retain(|other| other != file);
        while let Some(at) = later.iter().position(|file| self.continues(file)) {
            read(self, &later.remove(at), 0)?;
        }
        // The new file of a rotation that was interrupted may have a part of its first line.
        let first = first_line(path).unwrap_or_default();
        if later.iter().any(|file| file == path) && line::is_torn(&first) {
            read(self, path, 0)?;
        }
        self.found.torn = rest.torn();
        self.found.unclean |= self.found.torn.is_some();
        Ok(())
    }

    /// Reads the lines of one file; answers why one of them is not the trail's.
    fn read(
        &mut self,
        file: &Path,
        offset: u64,
        rest: &mut TornRest,
    ) -> io::Result<Option<String>> {
        if !file.metadata()?.is_file() {
            return Ok(None);
        }
        let mut file = File::open(file)?;
        // The next checkpoint, which may be in another file, covers its lines. A power cut must not take them away.
        let _ = disk::sync(&file);
        file.seek(SeekFrom::Start(offset))?;
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        while (&mut lines).take(LONGEST).read_until(b'\n', &mut line)? > 0 {
            let whole = line.strip_suffix(b"\n");
            let text = whole.unwrap_or(&line);
            // Only the end of a file can be anything: a start ends what it finds there with a newline.
            let may_be_torn =
                line::is_torn(text) || whole.is_none() && (text.len() as u64) < LONGEST;
            match self.chain.accept(text) {
                Some((chain, checkpoint)) if rest.is_sealed_by(checkpoint.as_ref()) => {
                    self.chain = chain;
                    *rest = TornRest::default();
                    let why = checkpoint.map(|checkpoint| checkpoint.why);
                    self.found.unclean = why != Some(CheckpointReason::Stop);
                }
                None if may_be_torn => rest.add(text),
                _ => {
                    let next = self.chain.seq + 1;
                    let why =
                        format!("what stands in place of line {next} is none of this trail's");
                    return Ok(Some(why));
                }
            }
            line.clear();
        }
        Ok(None)
    }

    /// True if the file begins with the next line.
    fn continues(&self, file: &Path) -> bool {
        let first = first_line(file).unwrap_or_default();
        self.chain.accept(&first).is_some()
    }
}

/// What is left of lines that were not written to their end: that of a crash, and those of starts that crashed before
/// they had sealed it.
#[derive(Default)]
struct TornRest {
    bytes: u64,
    digest: Sha256,
}

impl TornRest {
    fn add(&mut self, line: &[u8]) {
        if self.bytes > 0 {
            self.digest.update(b"\n");
            self.bytes += 1;
        }
        self.digest.update(line);
        self.bytes += line.len() as u64;
    }

    fn torn(&self) -> Option<TornLine> {
        (self.bytes > 0).then(|| TornLine {
            bytes: self.bytes,
            sha256: self.digest.clone().finalize().into(),
        })
    }

    /// True if there is none, or the checkpoint of a start has found it.
    fn is_sealed_by(&self, checkpoint: Option<&Checkpoint>) -> bool {
        self.bytes == 0 || checkpoint.is_some_and(|checkpoint| checkpoint.found.torn == self.torn())
    }
}

impl Chain {
    /// The chain after this line, if the line is the next one, and the line's checkpoint.
    fn accept(&self, line: &[u8]) -> Option<(Self, Option<Checkpoint>)> {
        let parts = line::parts(line)?;
        let parsed: ParsedLine = serde_json::from_slice(line).ok()?;
        if parsed.seq != self.seq + 1 || parts.mac != self.mac_of(parts.body) {
            return None;
        }
        let epoch = match parsed.checkpoint {
            Some(_) => self.epoch.next(),
            None => self.epoch.clone(),
        };
        let chain = Self::after(parsed.seq, parts.mac, epoch);
        Some((chain, parsed.checkpoint))
    }
}
