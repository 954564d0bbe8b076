use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::*;

/// A folder, and a file in it.
fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "text").unwrap();
    set(&file, 0o644);
    (folder, file)
}

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn refusal(path: &Path) -> String {
    let error = TrustedOwner::RootOrSelf.verify(path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert_eq!(
        TrustedOwner::RootOrSelf.open(path).unwrap_err().to_string(),
        error.to_string()
    );
    error.to_string()
}

#[test]
fn a_file_that_others_can_change_is_refused_with_the_command_that_repairs_it() {
    let (folder, file) = file();
    assert!(TrustedOwner::RootOrSelf.open(&file).is_ok());
    for mode in [0o664, 0o646] {
        set(&file, mode);
        let expected = format!("run: chmod go-w {}", file.display());
        assert!(refusal(&file).ends_with(&expected), "{}", refusal(&file));
    }
    set(&file, 0o644);
    for mode in [0o775, 0o757, 0o1757] {
        set(folder.path(), mode);
        let is_safe = mode == 0o1757;
        let verified = TrustedOwner::RootOrSelf.verify(&file);
        assert_eq!(verified.is_ok(), is_safe, "{mode:o} {verified:?}");
    }
}

#[test]
fn every_folder_and_link_on_the_way_counts() {
    let (folder, file) = file();
    let (open, shut) = (folder.path().join("it's open"), folder.path().join("shut"));
    for folder in [&open, &shut] {
        fs::create_dir(folder).unwrap();
        set(folder, 0o755);
    }
    symlink("../shut/link", open.join("link")).unwrap();
    symlink(Path::new("../shut/../file"), shut.join("link")).unwrap();
    let by_links = open.join("link");
    let found = TrustedOwner::RootOrSelf.verify(&by_links).unwrap();
    assert_eq!(found, file.canonicalize().unwrap());
    set(&open, 0o777);
    let quoted = format!(
        "run: chmod go-w '{}/it'\\''s open'",
        folder.path().display()
    );
    assert!(
        refusal(&by_links).ends_with(&quoted),
        "{}",
        refusal(&by_links)
    );
    set(&open, 0o755);
    set(&shut, 0o777);
    assert!(refusal(&by_links).contains("/shut (mode 0777"));
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    symlink(&one, &other).unwrap();
    symlink(&other, &one).unwrap();
    let endless = TrustedOwner::RootOrSelf.verify(&one).unwrap_err();
    assert_eq!(
        endless.raw_os_error(),
        Some(rustix::io::Errno::LOOP.raw_os_error())
    );
}

/// Root runs this: else nothing can be given to another user.
#[test]
fn a_path_has_forty_links_at_most_as_in_linux() {
    let (folder, file) = file();
    let [folder, file] = [folder.path(), &file].map(|path| path.canonicalize().unwrap());
    let link = |number: u32| folder.join(format!("link{number}"));
    symlink(&file, link(1)).unwrap();
    for number in 2..=41 {
        symlink(link(number - 1), link(number)).unwrap();
    }
    for (last, is_followed) in [(40, true), (41, false)] {
        assert_eq!(File::open(link(last)).is_ok(), is_followed);
        let resolved = TrustedOwner::RootOrSelf.resolve(&link(last));
        assert_eq!(resolved.ok(), is_followed.then(|| file.clone()));
    }
    let error = TrustedOwner::RootOrSelf.open(&link(41)).unwrap_err();
    let expected = rustix::io::Errno::LOOP.raw_os_error();
    assert_eq!(error.raw_os_error(), Some(expected));
}

#[test]
fn what_belongs_to_a_third_user_is_refused() {
    let (folder, file) = file();
    if !geteuid().is_root() {
        assert!(TrustedOwner::Root.verify(&file).is_err());
        return;
    }
    chown(&file, Some(65534), None).unwrap();
    assert!(refusal(&file).contains("owner uid 65534"));
    chown(&file, Some(0), None).unwrap();
    // The sticky bit keeps the entries of root there, and no others.
    set(folder.path(), 0o1777);
    assert!(TrustedOwner::Root.verify(&file).is_ok());
    let link = folder.path().join("link");
    symlink(&file, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
    assert!(refusal(&link).contains("replace"));
    chown(folder.path(), Some(65534), None).unwrap();
    assert!(refusal(&file).ends_with(&run("chown -h root", folder.path())));
    chown(folder.path(), Some(0), None).unwrap();
    let within = folder.path().join("within");
    fs::create_dir(&within).unwrap();
    set(folder.path(), 0o755);
    chown(&within, Some(65534), None).unwrap();
    fs::write(within.join("file"), "").unwrap();
    assert!(refusal(&within.join("file")).ends_with("such as /etc/hsmux"));
}

#[test]
fn a_server_is_root_or_the_owner_of_a_folder_that_root_has_made() {
    if !geteuid().is_root() {
        return;
    }
    let (above, folder) = (tempfile::tempdir().unwrap(), "run");
    let folder = above.path().join(folder);
    let socket = folder.join("socket");
    fs::create_dir(&folder).unwrap();
    fs::write(&socket, "").unwrap();
    let serves = |peer| verify_server(&socket, peer).is_ok();
    assert!(serves(0) && !serves(7));
    chown(&folder, Some(7), None).unwrap();
    chown(&socket, Some(7), None).unwrap();
    assert!(serves(0) && serves(7) && !serves(8));
    chown(&socket, Some(8), None).unwrap();
    assert!(!serves(7));
    chown(&socket, Some(7), None).unwrap();
    for (open, mode) in [
        (&folder, 0o1777),
        (&folder, 0o770),
        (&above.path().to_owned(), 0o1777),
    ] {
        set(open, mode);
        assert!(!serves(7), "{} {mode:o}", open.display());
        set(open, 0o755);
        assert!(serves(7));
    }
    chown(above.path(), Some(7), None).unwrap();
    assert!(!serves(7));
}

#[test]
fn a_descriptor_is_no_name_that_others_could_give_to_another_file() {
    let (_folder, path) = file();
    let file = File::open(&path).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&file);
    let by_number = PathBuf::from(format!("/proc/self/fd/{number}"));
    fs::remove_file(&path).unwrap();
    assert!(TrustedOwner::RootOrSelf.open(&by_number).is_ok());
}

#[test]
fn a_secret_is_read_where_others_have_no_access_to_it() {
    let (_folder, file) = file();
    let readers = [SecretReaders::Owner, SecretReaders::Group];
    for (mode, expected) in [
        (0o600, [true, true]),
        (0o400, [true, true]),
        (0o640, [false, true]),
        (0o660, [false, false]),
        (0o644, [false, false]),
        (0o602, [false, false]),
    ] {
        set(&file, mode);
        let read = readers.map(|readers| readers.read(&file).is_ok());
        assert_eq!(read, expected, "{mode:o}");
    }
    let refused = SecretReaders::Owner.read(&file).unwrap_err().to_string();
    let expected = format!(
        "{0} (mode 0602, owner uid {1}): every user can change it; run: chmod 600 {0}",
        file.display(),
        geteuid().as_raw()
    );
    assert_eq!(refused, expected);
    set(&file, 0o600);
    let owner = file.metadata().unwrap().uid();
    let for_user = |user| SecretReaders::Owner.check(&file, Some(user));
    assert!(for_user(owner).is_ok());
    assert_eq!(for_user(65534).is_ok(), owner == 0);
}

#[test]
fn a_secret_of_the_state_folder_is_read_from_a_volume_of_a_group() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("signing.key");
    fs::write(&file, "secret").unwrap();
    set(&file, 0o600);
    set(folder.path(), 0o770);
    assert!(SecretReaders::Owner.read(&file).is_err());
    assert_eq!(*SecretReaders::Owner.read_state(&file).unwrap(), b"secret");
    set(&file, 0o640);
    assert!(SecretReaders::Owner.read_state(&file).is_err());
    set(&file, 0o600);
    let link = folder.path().join("link");
    symlink(&file, &link).unwrap();
    assert!(SecretReaders::Owner.read_state(&link).is_err());
}

#[test]
fn a_secret_that_others_can_replace_is_refused() {
    let (folder, file) = file();
    set(&file, 0o600);
    let link = folder.path().join("link");
    symlink(&file, &link).unwrap();
    for mode in [0o775, 0o757, 0o777] {
        set(folder.path(), mode);
        for path in [&file, &link] {
            let refused = SecretReaders::Owner.read(path).unwrap_err().to_string();
            let expected = run("chmod go-w", folder.path());
            assert!(refused.ends_with(&expected), "{mode:o} {refused}");
            assert!(SecretReaders::Owner.check(path, None).is_err());
        }
    }
    set(folder.path(), 0o1777);
    assert!(SecretReaders::Owner.read(&link).is_ok());
    if !geteuid().is_root() {
        return;
    }
    // Root reads the secrets of a daemon in the daemon's folder, and no other user's folder is believed.
    set(folder.path(), 0o700);
    chown(folder.path(), Some(7), None).unwrap();
    assert!(SecretReaders::Owner.read(&file).is_err());
    assert!(SecretReaders::Owner.check(&file, Some(7)).is_ok());
    chown(&file, Some(7), None).unwrap();
    assert!(SecretReaders::Owner.read(&file).is_ok());
    assert!(SecretReaders::Owner.check(&file, Some(8)).is_err());
}

/// A pipe that nobody writes to would block the daemon for ever.
#[test]
fn only_a_regular_file_of_bounded_length_is_read() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let (folder, file) = file();
    let pipe = folder.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    set(&socket, 0o600);
    let device = PathBuf::from("/dev/zero");
    for path in [&pipe, &socket, &device, &folder.path().to_owned()] {
        let refusals = [
            SecretReaders::Owner.read(path).map(drop),
            SecretReaders::Group.check(path, None),
            TrustedOwner::RootOrSelf.open(path).map(drop),
            TrustedOwner::RootOrSelf.verify(path).map(drop),
        ];
        for refused in refusals {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("not a regular file"), "{refused}");
        }
    }
    set(&file, 0o600);
    let length = |length| {
        File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(length)
    };
    length(LONGEST_SECRET).unwrap();
    let read = SecretReaders::Owner.read(&file).unwrap();
    assert_eq!(read.len() as u64, LONGEST_SECRET);
    length(LONGEST_SECRET + 1).unwrap();
    let refused = SecretReaders::Owner.read(&file).unwrap_err().to_string();
    assert!(refused.contains("more than 1048576 bytes"), "{refused}");
}
