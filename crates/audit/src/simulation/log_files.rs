//! The files of the trail, and the lines in them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::disk::SimulatedDisk;
use crate::line::Gap;

pub struct LogFiles {
    /// Where the trail writes.
    pub path: PathBuf,
    /// In the order in which they were made.
    pub all: Vec<LogFile>,
    rotations: u64,
}

pub struct LogFile {
    pub file: File,
    /// The bytes that were read.
    pub read_to: u64,
    /// False if a power cut has undone that it was made.
    pub has_name: bool,
    /// The events of its lines, and the ends of the lines in the file.
    pub events: Vec<(u64, u64)>,
}

/// A line of an event or of a gap.
pub struct ReadLine {
    pub event: Option<u64>,
    pub gap: Option<Gap>,
    end: u64,
}

impl LogFiles {
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            all: Vec::new(),
            rotations: 0,
        }
    }

    /// The trail has opened these.
    pub fn add(&mut self, opened: Vec<File>) {
        for file in opened {
            if !self.all.iter().any(|known| known.is(&file)) {
                self.all.push(LogFile {
                    file,
                    read_to: 0,
                    has_name: true,
                    events: Vec::new(),
                });
            }
        }
    }

    /// The new lines, up to this end of the file that is written.
    pub fn read_new(&mut self, written: &File, end: u64) -> Vec<ReadLine> {
        let mut new = Vec::new();
        for log in &mut self.all {
            let end = if log.is(written) { end } else { log.len() };
            for line in lines(&log.bytes(log.read_to, end), log.read_to) {
                log.events.extend(line.event.map(|event| (event, line.end)));
                new.push(line);
            }
            log.read_to = end;
        }
        new
    }

    /// Renames the file, as programs do that rotate logs.
    pub fn rotate(&mut self, disk: &mut SimulatedDisk) {
        self.rotations += 1;
        if self.path.exists() {
            disk.rename(&self.path, &self.rotated(self.rotations));
        }
    }

    fn rotated(&self, number: u64) -> PathBuf {
        let name = format!("audit.log.{number:06}");
        self.path.with_file_name(name)
    }

    /// The files that have a name.
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths = crate::recover::siblings(&self.path);
        paths.extend(self.path.exists().then(|| self.path.clone()));
        paths
    }

    /// Reads all files anew, after a death.
    pub fn read_again(&mut self) {
        let paths = self.paths();
        for log in &mut self.all {
            log.has_name = paths.iter().any(|path| log.is_at(path));
            log.read_to = log.len();
            log.events = if log.has_name {
                log.events_now()
            } else {
                Vec::new()
            };
        }
    }

    /// Deletes all but so many, the oldest first.
    pub fn keep(&mut self, count: usize, disk: &mut SimulatedDisk) {
        let mut paths = self.paths();
        let is_enough = |all: &[LogFile]| {
            all.len() > count && all[all.len() - count..].iter().all(|log| log.len() > 1000)
        };
        while is_enough(&self.all) && disk.names.is_empty() {
            let oldest = self.all.remove(0);
            disk.forget(&oldest.file);
            if let Some(at) = paths.iter().position(|path| oldest.is_at(path)) {
                fs::remove_file(paths.remove(at)).unwrap();
            }
        }
    }

    /// Prints the beginning of each line, for a failure.
    pub fn print(&self) {
        for path in self.paths() {
            println!("{}:", path.display());
            let text = fs::read(path).unwrap();
            for line in String::from_utf8_lossy(&text).split_inclusive('\n') {
                let end = if line.ends_with('\n') {
                    ""
                } else {
                    " (no newline)"
                };
                let begin: String = line.trim_end().chars().take(120).collect();
                println!("  {begin}{end}");
            }
        }
    }

    pub fn handles(&self) -> Vec<File> {
        let handles = self.all.iter().map(|log| log.file.try_clone().unwrap());
        handles.collect()
    }
}

impl LogFile {
    pub fn is(&self, file: &File) -> bool {
        let numbers = [&self.file, file].map(|file| file.metadata().unwrap().ino());
        numbers[0] == numbers[1]
    }

    fn is_at(&self, path: &Path) -> bool {
        let here = self.file.metadata().unwrap().ino();
        path.metadata().is_ok_and(|there| there.ino() == here)
    }

    pub fn len(&self) -> u64 {
        self.file.metadata().unwrap().len()
    }

    pub fn bytes(&self, from: u64, to: u64) -> Vec<u8> {
        let mut bytes = vec![0; (to - from) as usize];
        self.file.read_exact_at(&mut bytes, from).unwrap();
        bytes
    }

    /// The events of the whole file as it is now, and the ends of their lines.
    pub fn events_now(&self) -> Vec<(u64, u64)> {
        let lines = lines(&self.bytes(0, self.len()), 0);
        let events = lines.into_iter();
        events
            .filter_map(|line| Some((line.event?, line.end)))
            .collect()
    }
}

/// Whole lines of events and gaps; others are checked by verification.
pub fn lines(bytes: &[u8], offset: u64) -> Vec<ReadLine> {
    #[derive(Deserialize)]
    struct LineFields {
        request: Option<String>,
        gap: Option<Gap>,
    }
    let mut end = offset;
    let mut found = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        end += line.len() as u64;
        // It may lack its newline alone, which the next start adds.
        let Ok(fields) = serde_json::from_slice::<LineFields>(line) else {
            continue;
        };
        let event = fields.request.map(|event| event.parse().unwrap());
        if event.is_some() || fields.gap.is_some() {
            found.push(ReadLine {
                event,
                gap: fields.gap,
                end,
            });
        }
    }
    found
}
