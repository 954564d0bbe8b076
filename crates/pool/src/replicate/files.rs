//! Files of the state folder: written whole or not at all, readable by their owner only.

use hsmux_token::{Error, Kind, Result, give_to_the_owner_of_the_folder};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Says which file or folder could not be used, and for what.
pub(crate) fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Error {
    let advice = match error
        .raw_os_error()
        .map(rustix::io::Errno::from_raw_os_error)
    {
        Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::FBIG) => {
            ": make room there"
        }
        Some(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM | rustix::io::Errno::ROFS) => {
            ": the state folder has to be writable"
        }
        _ => "",
    };
    Error::pool(
        Kind::Environment,
        format!("{doing} {}: {error}{advice}", path.display()),
    )
}

/// Opens a file that only its owner may read, making it when it is not there.
pub(crate) fn open_private(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|e| failed("open", path, &e))?;
    give_to_the_owner_of_the_folder(&file, path);
    Ok(file)
}

/// Replaces a file in one step: a crash leaves the old or the new one. `mode` is for a new file.
pub fn replace(path: &Path, contents: &[u8], mode: u32) -> Result<()> {
    let beside = path.with_extension("new");
    let written = || -> std::io::Result<()> {
        // A file that an earlier crash left may have another mode.
        match std::fs::remove_file(&beside) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&beside)?;
        give_to_the_owner_of_the_folder(&file, &beside);
        file.write_all(contents)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    written().map_err(|e| failed("write", path, &e))?;
    sync_folder(path.parent().unwrap_or(Path::new(".")))
}

/// Makes what was created, renamed or removed in a folder last.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|f| f.sync_all())
        .map_err(|e| failed("fsync", folder, &e))
}

/// Makes a folder that only its owner may enter.
pub(crate) fn private_folder(folder: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .and_then(|()| File::open(folder))
        .map(|made| give_to_the_owner_of_the_folder(&made, folder))
        .map_err(|e| failed("create", folder, &e))
}
