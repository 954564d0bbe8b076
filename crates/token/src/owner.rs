//! The owner of files that root makes for a daemon with a user of its own.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use rustix::fs::{AtFlags, statat};

/// Gives a file that root has made to the owner of its folder: the daemon of that user has to read what a command of root
/// leaves there. Other users' files keep their owner.
///
/// Only a file of root's that is new and has no other link is given away: a user who may write to the folder may have put
/// another file of root's in its place, or a link to one.
pub fn give_to_the_owner_of_the_folder(file: &File, path: &Path) {
    if rustix::process::geteuid().is_root() {
        // If this fails, the daemon reports it when it opens the file.
        let _ = give(file, path);
    }
}

fn give(file: &File, path: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let here = Path::new(".");
    let is_named = !folder.as_os_str().is_empty();
    let folder = File::open(if is_named { folder } else { here })?;
    let there = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let (file_is, owner) = (file.metadata()?, folder.metadata()?);
    let in_place = (there.st_dev, there.st_ino) == (file_is.dev(), file_is.ino());
    let new = file_is.is_dir() || file_is.nlink() == 1 && file_is.len() == 0;
    if in_place && new && file_is.uid() == 0 {
        fchown(file, Some(owner.uid()), Some(owner.gid()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// A folder that is another user's where root runs the test.
    fn of_another() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let other = rustix::process::geteuid().is_root().then_some(65534);
        chown(folder.path(), other, other).unwrap();
        folder
    }

    fn owner(path: &Path) -> (u32, u32) {
        let is = fs::symlink_metadata(path).unwrap();
        (is.uid(), is.gid())
    }

    #[test]
    fn what_root_makes_is_its_folders_owners() {
        let folder = of_another();
        let (file, within) = (folder.path().join("file"), folder.path().join("folder"));
        give_to_the_owner_of_the_folder(&File::create(&file).unwrap(), &file);
        fs::create_dir(&within).unwrap();
        give_to_the_owner_of_the_folder(&File::open(&within).unwrap(), &within);
        assert_eq!(owner(&file), owner(folder.path()));
        assert_eq!(owner(&within), owner(folder.path()));
    }

    #[test]
    fn what_is_not_new_or_not_roots_stays_its_owners() {
        let folder = of_another();
        let (full, others) = (folder.path().join("full"), folder.path().join("others"));
        fs::write(&full, "of root's own").unwrap();
        let before = owner(&full);
        give_to_the_owner_of_the_folder(&File::open(&full).unwrap(), &full);
        assert_eq!(owner(&full), before);
        fs::create_dir(&others).unwrap();
        let third = rustix::process::geteuid().is_root().then_some(1);
        chown(&others, third, third).unwrap();
        let before = owner(&others);
        give_to_the_owner_of_the_folder(&File::open(&others).unwrap(), &others);
        assert_eq!(owner(&others), before);
    }

    /// By a link the owner of a folder would get any file of root's.
    #[test]
    fn what_a_link_leads_to_stays_its_owners() {
        let (folder, elsewhere) = (of_another(), tempfile::tempdir().unwrap());
        let secret = elsewhere.path().join("secret");
        fs::write(&secret, "").unwrap();
        let before = owner(&secret);
        let (soft, hard) = (folder.path().join("soft"), folder.path().join("hard"));
        symlink(&secret, &soft).unwrap();
        give_to_the_owner_of_the_folder(&File::open(&soft).unwrap(), &soft);
        assert_eq!(owner(&secret), before);
        fs::hard_link(&secret, &hard).unwrap();
        give_to_the_owner_of_the_folder(&File::open(&hard).unwrap(), &hard);
        assert_eq!(owner(&secret), before);
    }
}
