//! New PINs for the members: each is in its file before the token takes it, and nowhere else.
//!
//! The new PIN is first written beside the old one (`hsm1.pin.next`), then the token is told, then
//! the new file takes the old one's place. A run that was broken off anywhere is continued by the
//! next: a file `.next` that is there is the PIN that the token has, or gets. The record of the
//! breaker tells which, without a wrong PIN being tried.

use super::files;
use crate::config::PinSource;
use hsmux_token::{Error, Kind, Result, Secret};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What the rotation asks of the tokens: `hsmux_module::change_pin`, or a fake.
pub trait Desk {
    /// Changes a member's user PIN. It may have been changed to `new` before: then this is `Ok`, and
    /// no PIN is tried.
    fn change_pin(&self, member: &str, old: &Secret, new: &Secret) -> Result<()>;
}

/// A member whose PIN is to change, and where the configuration has it.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The member.
    pub member: String,
    /// Where its PIN comes from.
    pub source: PinSource,
    /// How long its new PIN is: within ulMinPinLen and ulMaxPinLen of the token.
    pub length: usize,
}

/// What became of one PIN file and the members that share it.
#[derive(Debug)]
pub struct Rotated {
    /// The file, which has the new PIN if `result` is `Ok`.
    pub file: PathBuf,
    /// Its members.
    pub members: Vec<String>,
    /// Why it is not through. Another run continues it; until then the new PIN is in the file beside.
    pub result: Result<()>,
}

/// Gives every member a new random PIN; members that share a file keep sharing one PIN.
///
/// Refuses before any token is told, when one PIN does not come from a file or a file cannot be
/// replaced. `progress` is told of each file when it is done. A failure of one token does not keep
/// the others from theirs.
pub fn rotate(
    holders: &[Holder],
    desk: &dyn Desk,
    progress: &dyn Fn(&Rotated),
) -> Result<Vec<Rotated>> {
    let files = by_file(holders)?;
    for (file, members) in &files {
        prepare(file, members)?;
    }
    let mut all = Vec::new();
    for (file, members) in files {
        let rotated = Rotated {
            result: exchange(&file, &members, desk),
            members: members.iter().map(|h| h.member.clone()).collect(),
            file,
        };
        progress(&rotated);
        all.push(rotated);
    }
    Ok(all)
}

/// Whether a run for this PIN was broken off: its new PIN is written down already.
pub fn begun(source: &PinSource) -> bool {
    match source {
        PinSource::File(path) => {
            std::fs::canonicalize(path).is_ok_and(|file| beside(&file).exists())
        }
        _ => false,
    }
}

fn by_file(holders: &[Holder]) -> Result<Vec<(PathBuf, Vec<&Holder>)>> {
    let mut files: Vec<(PathBuf, Vec<&Holder>)> = Vec::new();
    for holder in holders {
        let PinSource::File(path) = &holder.source else {
            return Err(refused(
                &holder.member,
                &format!(
                    "the new PIN cannot be written where its {}: write pin = {{ file = \"...\" }} in the \
                     configuration for the rotation, or change it by `pkcs11-tool --change-pin` and \
                     there",
                    holder.source
                ),
            ));
        };
        // The file itself, also where several names lead to it.
        let path = std::fs::canonicalize(path).map_err(|e| files::failed("find", path, &e))?;
        match files.iter_mut().find(|(file, _)| *file == path) {
            Some((_, members)) => members.push(holder),
            None => files.push((path, vec![holder])),
        }
    }
    Ok(files)
}

/// Puts the new PIN beside the old one, unless an earlier run has.
fn prepare(file: &Path, members: &[&Holder]) -> Result<()> {
    let next = beside(file);
    if next.exists() {
        return Ok(());
    }
    let length = members.iter().map(|h| h.length).min().unwrap_or(0);
    let pin = random_pin(length)?;
    let mut line = zeroize::Zeroizing::new(pin.expose().to_vec());
    line.push(b'\n');
    files::replace(&next, &line, 0o600)?;
    as_before(file, &next).inspect_err(|_| {
        let _ = std::fs::remove_file(&next);
    })
}

/// Tells the tokens, then puts the new file in the old one's place.
fn exchange(file: &Path, members: &[&Holder], desk: &dyn Desk) -> Result<()> {
    let next = beside(file);
    let (old, new) = (read(file)?, read(&next)?);
    let mut failed = None;
    for holder in members {
        if let Err(error) = desk.change_pin(&holder.member, &old, &new) {
            failed.get_or_insert(error.at(&holder.member));
        }
    }
    if let Some(error) = failed {
        return Err(error.at(format!(
            "{} is not through, and the next run continues it",
            file.display()
        )));
    }
    std::fs::rename(&next, file).map_err(|e| files::failed("replace", file, &e))?;
    files::sync_folder(file.parent().unwrap_or(Path::new("/")))
}

/// `hsm1.pin.next` beside `hsm1.pin`.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".next");
    name.into()
}

/// Owner and permissions of the old file, so that those who read it can read the new one.
fn as_before(file: &Path, next: &Path) -> Result<()> {
    use rustix::fs::{Gid, Mode, Uid};
    let given = || -> std::io::Result<()> {
        let old = std::fs::metadata(file)?;
        let new = std::fs::File::open(next)?;
        let is = new.metadata()?;
        if (is.uid(), is.gid()) != (old.uid(), old.gid()) {
            let (owner, group) = (Uid::from_raw(old.uid()), Gid::from_raw(old.gid()));
            rustix::fs::fchown(&new, Some(owner), Some(group))?;
        }
        rustix::fs::fchmod(&new, Mode::from_raw_mode(old.mode() & 0o777))?;
        new.sync_all()
    };
    given().map_err(|e| files::failed("give the owner and mode of the old PIN file to", next, &e))
}

fn read(path: &Path) -> Result<Secret> {
    PinSource::File(path.to_owned()).read()
}

/// A PIN of letters and digits, which every token takes; each is drawn evenly.
fn random_pin(length: usize) -> Result<Secret> {
    // Without those that people mix up: 0 O o, 1 I l.
    const LETTERS: &[u8] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz";
    const EVEN: usize = 256 - 256 % LETTERS.len();
    if length == 0 {
        return Err(refused("the new PIN", "has to have a length"));
    }
    let mut pin = Vec::with_capacity(length);
    while pin.len() < length {
        let byte = usize::from(super::random::<1>()?[0]);
        if byte < EVEN {
            pin.push(LETTERS[byte % LETTERS.len()]);
        }
    }
    Ok(Secret::new(pin))
}

fn refused(member: &str, why: &str) -> Error {
    Error::request(Kind::Invalid, format!("{member}: {why}"))
}
