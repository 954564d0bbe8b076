//! Files that other users must not change, or must not read: configurations, modules, PINs, keys.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;
use zeroize::Zeroizing;

/// Symbolic links that are followed on one path, as in Linux (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Bytes of a file with a secret.
const LONGEST_SECRET: u64 = 1 << 20;

const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Opening a path with these follows no link, waits for nobody and takes no terminal.
const HARMLESS: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Who may own a file that a program believes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrustedOwner {
    /// Root alone: for privileged programs (AT_SECURE in getauxval(3)).
    Root,
    /// Root, or the effective user of this process.
    RootOrSelf,
    /// Root, or this user: of a daemon, whose files root reads.
    RootOr(u32),
}

/// Who may read a file with a secret besides its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretReaders {
    /// Nobody: for PINs.
    Owner,
    /// Its group: for keys of TLS, which services of one group share, and for systemd's credentials, whose
    /// access control list shows as the group's permissions.
    Group,
}

impl TrustedOwner {
    fn includes(self, uid: u32) -> bool {
        uid == 0
            || match self {
                Self::Root => false,
                Self::RootOrSelf => uid == geteuid().as_raw(),
                Self::RootOr(user) => uid == user,
            }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::RootOrSelf => "root or the user of this process",
            Self::RootOr(_) => "root or the user that needs it",
        }
    }

    /// Opens a file for reading that no other user can change or replace; every folder and link on the way to it
    /// is verified, then the file that was opened. The error names the path and the command that repairs it.
    pub fn open(self, path: &Path) -> io::Result<File> {
        // Opening a device may do something.
        let found = self.verify(path)?;
        let file = open_resolved(&found)?;
        self.verify_file(&found, &file.metadata()?)?;
        Ok(file)
    }

    /// The same for a file that something else opens: where it is, without links. Others cannot replace it afterwards,
    /// because they can change none of the folders.
    pub fn verify(self, path: &Path) -> io::Result<PathBuf> {
        let found = self.resolve(path)?;
        self.verify_file(&found, &found.metadata()?)?;
        Ok(found)
    }

    /// The same for a file that may come later: while it is not there, others can make neither it nor a folder of its
    /// path.
    pub fn verify_or_absent(self, path: &Path) -> io::Result<()> {
        match self.verify(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.verify_absent(path),
            verified => verified.map(drop),
        }
    }

    fn verify_absent(self, path: &Path) -> io::Result<()> {
        let absolute = std::path::absolute(path)?;
        let Some(parent) = absolute.parent() else {
            return Ok(());
        };
        let folder = match self.resolve(parent) {
            Err(error) if error.kind() == ErrorKind::NotFound => return self.verify_absent(parent),
            found => found?,
        };
        let metadata = folder.metadata()?;
        if self.includes(metadata.uid()) && metadata.mode() & WRITABLE_BY_OTHERS == 0 {
            return Ok(());
        }
        let why = format!("other users can make {} in it", absolute.display());
        let advice = "take a folder that only root can change, such as /etc/hsmux";
        Err(refused(&folder, &metadata, &why, advice))
    }

    /// Opens a file for appending, or makes it with this mode. Others can replace neither the file nor a folder or link
    /// on the way to it. A link in place of the file is not followed.
    pub fn open_to_append(self, path: &Path, mode: u32) -> io::Result<File> {
        let path = std::path::absolute(path)?;
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(ErrorKind::IsADirectory.into());
        };
        let folder = self.resolve(folder)?;
        let found = folder.join(name);
        // Opening a device may do something.
        match found.symlink_metadata() {
            Ok(metadata) => verify_kind(&found, &metadata)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let open = |more| {
            let flags = OFlags::WRONLY | OFlags::APPEND | HARMLESS | more;
            rustix::fs::open(&found, flags, Mode::from_raw_mode(mode)).map(File::from)
        };
        let file = match open(OFlags::CREATE | OFlags::EXCL) {
            Err(rustix::io::Errno::EXIST) => open(OFlags::empty())?,
            new => {
                let new = new?;
                // Whatever the umask.
                rustix::fs::fchmod(&new, Mode::from_raw_mode(mode))?;
                new
            }
        };
        let metadata = file.metadata()?;
        self.verify_folder(&folder, &found, &metadata)?;
        self.verify_file(&found, &metadata)?;
        if metadata.nlink() > 1 {
            let why = "it has another name (a hard link)";
            return Err(refused(&found, &metadata, why, &run("rm", &found)));
        }
        Ok(file)
    }

    /// The path without links, if no other user can change what it leads to. The last entry's own permissions are
    /// not looked at.
    pub fn resolve(self, path: &Path) -> io::Result<PathBuf> {
        let absolute = std::path::absolute(path)?;
        let mut ahead: VecDeque<OsString> = parts(&absolute);
        let mut reached = PathBuf::from("/");
        let mut links = 0;
        while let Some(part) = ahead.pop_front() {
            if part == "/" {
                reached = PathBuf::from("/");
                continue;
            }
            if part == ".." {
                reached.pop();
                continue;
            }
            let next = reached.join(&part);
            let entry = next.symlink_metadata()?;
            self.verify_folder(&reached, &next, &entry)?;
            if !entry.is_symlink() || is_descriptor(&next) {
                reached = next;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(rustix::io::Errno::LOOP.into());
            }
            let target = next.read_link()?;
            for part in parts(&target).into_iter().rev() {
                ahead.push_front(part);
            }
        }
        Ok(reached)
    }

    fn verify_folder(self, folder: &Path, next: &Path, entry: &Metadata) -> io::Result<()> {
        let metadata = folder.metadata()?;
        let foreign = |what| {
            format!(
                "its owner can replace {what}, and is not {}",
                self.describe()
            )
        };
        if !self.includes(metadata.uid()) {
            let advice = "take a folder that only root can change, such as /etc/hsmux";
            return Err(refused(
                folder,
                &metadata,
                &foreign("what is in it"),
                advice,
            ));
        }
        if metadata.mode() & WRITABLE_BY_OTHERS == 0 {
            return Ok(());
        }
        if metadata.mode() & STICKY == 0 {
            let why = "other users can replace what is in it";
            return Err(refused(folder, &metadata, why, &run("chmod go-w", folder)));
        }
        // The folder is sticky: only the owner of an entry can replace it.
        if !self.includes(entry.uid()) {
            let advice = run("chown -h root", next);
            return Err(refused(next, entry, &foreign("it"), &advice));
        }
        Ok(())
    }

    fn verify_file(self, path: &Path, metadata: &Metadata) -> io::Result<()> {
        // A pipe or a terminal that this process has been given, by the number of its descriptor.
        if is_descriptor(path) && !metadata.is_file() {
            return Ok(());
        }
        verify_kind(path, metadata)?;
        if !self.includes(metadata.uid()) {
            let why = format!("its owner can change it, and is not {}", self.describe());
            return Err(refused(path, metadata, &why, &run("chown root", path)));
        }
        if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
            let why = "other users can change it";
            return Err(refused(path, metadata, why, &run("chmod go-w", path)));
        }
        Ok(())
    }
}

impl SecretReaders {
    /// Reads a file with a secret. Others must have no access to it, and must not be able to replace it; its owner must
    /// be root or the user of this process. Root reads those of any owner, for a daemon has a user of its own.
    pub fn read(self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        let (file, metadata) = self.open(path, None)?;
        contents(file, &metadata)
    }

    /// Reads a secret that this program itself has written to its state folder. The folders above it are not verified: a
    /// container may have its state on a volume of its group.
    pub fn read_state(self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        let file = open_resolved(path)?;
        let metadata = file.metadata()?;
        self.verify_file(path, &metadata, None)?;
        contents(file, &metadata)
    }

    /// Whether `user` can read a secret's file and nobody else can; `None`: the user of this process, or root for
    /// whichever user.
    pub fn check(self, path: &Path, user: Option<u32>) -> io::Result<()> {
        self.open(path, user).map(drop)
    }

    fn open(self, path: &Path, user: Option<u32>) -> io::Result<(File, Metadata)> {
        let named = path.metadata()?;
        self.verify(path, &named, user)?;
        let trusted = match user {
            Some(user) => TrustedOwner::RootOr(user),
            None if geteuid().is_root() => TrustedOwner::RootOr(named.uid()),
            None => TrustedOwner::RootOrSelf,
        };
        let found = trusted.resolve(path)?;
        let file = open_resolved(&found)?;
        let metadata = file.metadata()?;
        self.verify_file(path, &metadata, user)?;
        Ok((file, metadata))
    }

    fn verify_file(self, path: &Path, metadata: &Metadata, user: Option<u32>) -> io::Result<()> {
        self.verify(path, metadata, user)?;
        if metadata.len() > LONGEST_SECRET {
            let why = format!("it has more than {LONGEST_SECRET} bytes");
            let advice = "name the file that holds the secret alone";
            return Err(refused(path, metadata, &why, advice));
        }
        Ok(())
    }

    fn verify(self, path: &Path, metadata: &Metadata, user: Option<u32>) -> io::Result<()> {
        verify_kind(path, metadata)?;
        let (withheld, command) = match self {
            Self::Owner => (0o077, "chmod 600"),
            Self::Group => (0o027, "chmod 640"),
        };
        let open = metadata.mode() & withheld;
        if open != 0 {
            let who = if open & 0o007 != 0 {
                "every user"
            } else {
                "its group"
            };
            let what = if open & 0o022 != 0 { "change" } else { "read" };
            let why = format!("{who} can {what} it");
            return Err(refused(path, metadata, &why, &run(command, path)));
        }
        let self_is = geteuid().as_raw();
        let owner = metadata.uid();
        let fits = user.map_or(owner == self_is || self_is == 0, |user| owner == user);
        if owner != 0 && !fits {
            let why = "its owner is neither root nor the user that needs it";
            return Err(refused(path, metadata, why, &run("chown root", path)));
        }
        Ok(())
    }
}

fn contents(file: File, metadata: &Metadata) -> io::Result<Zeroizing<Vec<u8>>> {
    // Grown in place, a buffer would leave parts of the secret behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(metadata.len() as usize + 1));
    file.take(metadata.len()).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Verifies that root, or the user of a daemon, serves a socket. A daemon's user is the owner of the socket's folder: only
/// root can have made that folder, and nobody else can change it. `peer` is the listener's user id (SO_PEERCRED in unix(7)).
pub fn verify_server(socket: &Path, peer: u32) -> io::Result<()> {
    let folder = socket.parent().unwrap_or(Path::new("/"));
    let folder = TrustedOwner::Root.resolve(folder)?;
    let metadata = folder.metadata()?;
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        let why = "other users can replace the socket in it";
        return Err(refused(
            &folder,
            &metadata,
            why,
            &run("chmod go-w", &folder),
        ));
    }
    let daemon = metadata.uid();
    let metadata = socket.symlink_metadata()?;
    for uid in [metadata.uid(), peer] {
        if uid != 0 && uid != daemon {
            let why = format!("uid {uid} serves it, and the folder belongs to uid {daemon}");
            let advice = "start the daemon as the owner of the folder, or as root";
            return Err(refused(socket, &metadata, &why, advice));
        }
    }
    Ok(())
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let named = path.components().filter(|part| *part != Component::CurDir);
    named.map(|part| part.as_os_str().to_owned()).collect()
}

/// A named pipe would block its reader, and a device may be endless.
fn verify_kind(path: &Path, metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let advice = "name a regular file";
    Err(refused(path, metadata, "it is not a regular file", advice))
}

/// Opens a path without links, and never waits for the other end of a named pipe.
fn open_resolved(path: &Path) -> io::Result<File> {
    if is_descriptor(path) {
        return File::open(path);
    }
    Ok(rustix::fs::open(path, OFlags::RDONLY | HARMLESS, Mode::empty())?.into())
}

/// A link of proc(5) to a descriptor that this process has open: not a name that is looked up.
fn is_descriptor(path: &Path) -> bool {
    let Some(folder) = path.parent() else {
        return false;
    };
    folder.starts_with("/proc") && folder.ends_with("fd")
}

fn refused(path: &Path, metadata: &Metadata, why: &str, advice: &str) -> io::Error {
    let (mode, uid) = (metadata.mode() & 0o7777, metadata.uid());
    let path = path.display();
    let message = format!("{path} (mode {mode:04o}, owner uid {uid}): {why}; {advice}");
    io::Error::new(ErrorKind::PermissionDenied, message)
}

fn run(command: &str, path: &Path) -> String {
    format!("run: {command} {}", word(path))
}

/// A path as a shell takes it.
fn word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@:,%=".contains(&byte);
    if text.bytes().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
