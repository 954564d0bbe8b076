//! The file or the journal. Its errors are logged once, until it can be written again.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hsmux_config::AccessLogTarget;
use hsmux_token::permissions::TrustedOwner;

/// Where lines go.
pub struct Output {
    target: AccessLogTarget,
    file: Option<File>,
    /// A line was written in part.
    is_torn: bool,
    /// Lines that were lost since the error that was logged.
    failing: Option<u64>,
}

/// The mode of a new file.
const MODE: u32 = 0o640;

impl Output {
    /// Nothing is opened before the first line.
    pub fn new(target: AccessLogTarget) -> Self {
        Self {
            target,
            file: None,
            is_torn: false,
            failing: None,
        }
    }

    /// Writes whole lines. Returns how many of them are lost.
    pub fn write(&mut self, service: &str, lines: &[u8]) -> u64 {
        if lines.is_empty() {
            return 0;
        }
        let (done, outcome) = match self.open() {
            Ok(()) => self.append(lines),
            Err(error) => (0, Err(error)),
        };
        let (lost, target) = (count(&lines[done..]), &self.target);
        match (outcome, self.failing) {
            (Ok(()), None) => {}
            (Ok(()), Some(all)) => {
                tracing::warn!(
                    "[{service}] access_log: {target} is written again; {all} lines were lost"
                );
                self.failing = None;
            }
            (Err(error), None) => {
                tracing::error!(
                    %error,
                    "[{service}] access_log: {target} cannot be written; lines are lost and counted until it can be"
                );
                self.failing = Some(lost);
            }
            (Err(_), Some(all)) => self.failing = Some(all + lost),
        }
        lost
    }

    /// Opens the file, if its path does not lead to the one that is open: it was rotated.
    fn open(&mut self) -> io::Result<()> {
        match &self.target {
            AccessLogTarget::Journal if self.file.is_none() => {
                // A lock of the standard library would be held while this waits.
                let own = io::stderr().as_fd().try_clone_to_owned()?;
                self.file = Some(own.into());
            }
            AccessLogTarget::Journal => {}
            AccessLogTarget::File(path) => {
                if !self.file.as_ref().is_some_and(|file| leads_to(path, file)) {
                    self.file = None;
                    self.is_torn = false;
                    let file = TrustedOwner::RootOrSelf.open_to_append(path, MODE)?;
                    self.file = Some(file);
                }
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that were written.
    fn append(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        let Some(file) = &mut self.file else {
            return (0, Ok(()));
        };
        if self.is_torn {
            if let (_, Err(error)) = write(file, b"\n") {
                return (0, Err(error));
            }
            self.is_torn = false;
        }
        let mut done = 0;
        // Other processes write to the journal as well: their lines come between whole lines only.
        let one_by_one = self.target == AccessLogTarget::Journal;
        while done < lines.len() {
            let rest = &lines[done..];
            let end = rest.iter().position(|byte| one_by_one && *byte == b'\n');
            let part = end.map_or(rest, |end| &rest[..=end]);
            let (written, outcome) = write(file, part);
            done += written;
            if outcome.is_err() {
                let whole = lines[..done].iter().rposition(|byte| *byte == b'\n');
                let whole = whole.map_or(0, |end| end + 1);
                self.is_torn = whole < done;
                return (whole, outcome);
            }
        }
        (done, Ok(()))
    }
}

/// As `write_all`, but it tells how many bytes were written before an error.
fn write(file: &mut File, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut done = 0;
    while done < bytes.len() {
        match file.write(&bytes[done..]) {
            Ok(0) => return (done, Err(ErrorKind::WriteZero.into())),
            Ok(written) => done += written,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (done, Err(error)),
        }
    }
    (done, Ok(()))
}

fn leads_to(path: &Path, file: &File) -> bool {
    let id = |of: io::Result<std::fs::Metadata>| of.map(|of| (of.dev(), of.ino())).ok();
    let there = id(path.symlink_metadata());
    there.is_some() && there == id(file.metadata())
}

fn count(lines: &[u8]) -> u64 {
    lines.split_inclusive(|byte| *byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn output(path: &Path) -> Output {
        Output::new(AccessLogTarget::File(path.to_owned()))
    }

    #[test]
    fn a_new_file_is_for_its_owner_and_group() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        assert_eq!(output(&path).write("gateway", b"one\n"), 0);
        assert_eq!(output(&path).write("gateway", b"two\n"), 0);
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\n");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o640);
    }

    #[test]
    fn a_file_that_was_rotated_is_opened_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
        let mut output = output(&path);
        output.write("gateway", b"one\n");
        fs::rename(&path, &old).unwrap();
        output.write("gateway", b"two\n");
        assert_eq!(fs::read(&old).unwrap(), b"one\n");
        assert_eq!(fs::read(&path).unwrap(), b"two\n");
        // As logrotate's `create` does.
        fs::rename(&path, &old).unwrap();
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        output.write("gateway", b"three\n");
        assert_eq!(fs::read(&path).unwrap(), b"three\n");
    }

    #[test]
    fn what_others_may_have_put_there_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let victim = folder.path().join("victim");
        fs::write(&victim, "text").unwrap();
        fs::set_permissions(&victim, PermissionsExt::from_mode(0o600)).unwrap();
        let refuses = |what: &str| {
            assert_eq!(output(&path).write("gateway", b"one\ntwo\n"), 2, "{what}");
            assert_eq!(fs::read(&victim).unwrap(), b"text", "{what}");
            fs::remove_file(&path).unwrap();
        };
        symlink(&victim, &path).unwrap();
        refuses("a symbolic link");
        fs::hard_link(&victim, &path).unwrap();
        refuses("a hard link");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        refuses("a pipe");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o646)).unwrap();
        refuses("a file that all may change");
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(output(&path).write("gateway", b"one\n"), 1);
    }

    /// `/dev/full` is a disk without room.
    #[test]
    fn lines_of_a_full_disk_are_counted() {
        let mut output = output(Path::new("/dev/full"));
        assert_eq!(
            output.write("gateway", b"one\n"),
            1,
            "a device is not opened"
        );
        output.file = Some(
            fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap(),
        );
        assert_eq!(output.write("gateway", b"two\nthree\n"), 2);
        assert_eq!(output.failing, Some(3));
    }

    #[test]
    fn a_torn_line_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut output = output(&path);
        output.write("gateway", b"one\ntw");
        // As after a write of a part.
        output.is_torn = true;
        output.write("gateway", b"two\n");
        assert_eq!(fs::read(&path).unwrap(), b"one\ntw\ntwo\n");
    }
}
