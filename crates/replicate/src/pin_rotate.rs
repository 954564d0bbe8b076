//! New PINs for the members: each is in its file before the token takes it, and nowhere else.
//!
//! All new PINs are first written as drafts (`hsm1.pin.draft`) beside the old ones; then each draft is the PIN to
//! come (`hsm1.pin.next`); then one token after the other is told, and its new file takes the old one's
//! place. A run that was broken off anywhere is continued by the next: a file `.next` that is there is the PIN
//! that the token has, or gets. The record of the breaker tells which, without a wrong PIN being tried where that
//! can be known. Once there is a `.next`, whoever has neither it nor a draft is through.

use hsmux_config::PinSource;
use hsmux_state::failed;
use hsmux_token::{Error, Kind, Result, Secret};
use std::path::{Path, PathBuf};

/// Changes PINs of tokens: `hsmux_module::change_pin`, or a fake.
pub trait PinChanger {
    /// Changes a member's user PIN. It may have been changed to `new` before: then this is `Ok`, and
    /// no PIN is tried.
    fn change_pin(&self, member: &str, old: &Secret, new: &Secret) -> Result<()>;
}

/// A member whose PIN is to change, and where the configuration has it.
#[derive(Clone, Debug)]
pub struct PinHolder {
    /// The member.
    pub member: String,
    /// The source of its PIN.
    pub source: PinSource,
    /// How long its new PIN is: within ulMinPinLen and ulMaxPinLen of the token.
    pub length: usize,
}

/// The result for one PIN file and the members that share it.
#[derive(Debug)]
pub struct RotationResult {
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
    holders: &[PinHolder],
    changer: &dyn PinChanger,
    progress: &dyn Fn(&RotationResult),
) -> Result<Vec<RotationResult>> {
    let files = by_file(holders)?;
    for (file, members) in &files {
        prepare(file, members)?;
    }
    for (file, _) in &files {
        settle(file)?;
    }
    let mut all = Vec::new();
    for (file, members) in files {
        let rotated = RotationResult {
            result: exchange(&file, &members, changer),
            members: members.iter().map(|h| h.member.clone()).collect(),
            file,
        };
        progress(&rotated);
        all.push(rotated);
    }
    Ok(all)
}

/// True if a run for this PIN was interrupted: the token may have the new one already.
pub fn begun(source: &PinSource) -> bool {
    file_of(source).is_some_and(|file| beside(&file, NEXT).exists())
}

/// Those whose PINs are to change, and those that stay as they are: where a run was broken off, those that it has not
/// come to stay to be done.
pub fn remaining<T>(all: Vec<T>, source: impl Fn(&T) -> Option<&PinSource>) -> (Vec<T>, Vec<T>) {
    if !all.iter().filter_map(&source).any(begun) {
        return (all, Vec::new());
    }
    all.into_iter().partition(|one| {
        let file = source(one).and_then(file_of);
        file.is_some_and(|file| [NEXT, DRAFT].iter().any(|end| beside(&file, end).exists()))
    })
}

/// True if both PINs are in one file, under any names.
pub fn are_shared(one: &PinSource, other: &PinSource) -> bool {
    file_of(one).is_some_and(|file| file_of(other) == Some(file))
}

/// The file itself, also where several names lead to it.
fn file_of(source: &PinSource) -> Option<PathBuf> {
    match source {
        PinSource::File(path) => std::fs::canonicalize(path).ok(),
        _ => None,
    }
}

fn by_file(holders: &[PinHolder]) -> Result<Vec<(PathBuf, Vec<&PinHolder>)>> {
    let mut files: Vec<(PathBuf, Vec<&PinHolder>)> = Vec::new();
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
        let path = std::fs::canonicalize(path).map_err(|e| failed("find", path, &e))?;
        match files.iter_mut().find(|(file, _)| *file == path) {
            Some((_, members)) => members.push(holder),
            None => files.push((path, vec![holder])),
        }
    }
    Ok(files)
}

/// Drafts the new PIN beside the old one, unless it is an earlier run's.
fn prepare(file: &Path, members: &[&PinHolder]) -> Result<()> {
    if beside(file, NEXT).exists() {
        return Ok(());
    }
    let draft = beside(file, DRAFT);
    let length = members.iter().map(|h| h.length).min().unwrap_or(0);
    let pin = random_pin(length)?;
    let mut line = zeroize::Zeroizing::new(pin.expose().to_vec());
    line.push(b'\n');
    hsmux_state::replace_like(&draft, &line, file).map_err(|e| failed("write", &draft, &e))
}

/// The draft is the PIN that the token will get.
fn settle(file: &Path) -> Result<()> {
    let (draft, next) = (beside(file, DRAFT), beside(file, NEXT));
    if next.exists() {
        return Ok(());
    }
    std::fs::rename(&draft, &next).map_err(|e| failed("rename", &draft, &e))?;
    hsmux_state::sync_parent(file).map_err(|e| failed("fsync the folder of", file, &e))
}

/// Tells the tokens, then puts the new file in the old one's place.
fn exchange(file: &Path, members: &[&PinHolder], changer: &dyn PinChanger) -> Result<()> {
    let next = beside(file, NEXT);
    let (old, new) = (read(file)?, read(&next)?);
    let mut first = None;
    for holder in members {
        if let Err(error) = changer.change_pin(&holder.member, &old, &new) {
            first.get_or_insert(error.at(&holder.member));
        }
    }
    if let Some(error) = first {
        return Err(error.at(format!(
            "{} is not through, and the next run continues it",
            file.display()
        )));
    }
    std::fs::rename(&next, file).map_err(|e| failed("replace", file, &e))?;
    hsmux_state::sync_parent(file).map_err(|e| failed("fsync the folder of", file, &e))
}

/// The suffix of a PIN that no token has.
const DRAFT: &str = ".draft";

/// The suffix of a PIN that a token has or gets.
const NEXT: &str = ".next";

/// `hsm1.pin.next` beside `hsm1.pin`.
fn beside(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(end);
    name.into()
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
