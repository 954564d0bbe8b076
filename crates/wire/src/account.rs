//! The account of a user id, for shares and limits. A user with subordinate ids (subuid(5)) can be any of them, without
//! any right of its own: they are one account.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use hsmux_token::sync::Mutex;

/// The system's list of subordinate ids.
const FILE: &str = "/etc/subuid";

/// Names whose ids belong to containers of several users: root's, those of Docker (userns-remap) and of Podman
/// (`--userns=auto`).
const OF_MANY: [&str; 4] = ["root", "0", "dockremap", "containers"];

/// The longest part of the list that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// The account of this user id: the first subordinate id of the user if it is one of them, else itself. Lines of the list
/// are of one user if they have the same name.
pub fn account(uid: u32) -> u32 {
    static SYSTEM: Mutex<Option<Loaded>> = Mutex::new(None);
    ranges(&SYSTEM, Path::new(FILE)).map_or(uid, |ranges| ranges.account(uid))
}

/// Reads the list of subordinate ids, for a process that cannot read it later.
pub fn read_accounts() {
    account(0);
}

struct Loaded {
    version: Version,
    ranges: Arc<Ranges>,
}

/// What differs after the file has changed: device, inode, length, seconds and nanoseconds of the change.
type Version = (u64, u64, u64, i64, i64);

/// The ranges of the file, read again if it has changed.
fn ranges(loaded: &Mutex<Option<Loaded>>, path: &Path) -> io::Result<Arc<Ranges>> {
    let mut loaded = loaded.lock();
    let known = loaded.as_ref().map(|known| Arc::clone(&known.ranges));
    let found = match (path.metadata(), &known) {
        (Err(_), Some(known)) => return Ok(Arc::clone(known)),
        (found, _) => found?,
    };
    let version = (
        found.dev(),
        found.ino(),
        found.len(),
        found.ctime(),
        found.ctime_nsec(),
    );
    if let Some(known) = &*loaded
        && known.version == version
    {
        return Ok(Arc::clone(&known.ranges));
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    if let Err(error) = read {
        // The sandbox of a worker admits the file that was there at its start.
        return known.ok_or(error);
    }
    if found.len() > LONGEST {
        // Its last line may be cut.
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        bytes.truncate(end.unwrap_or(0));
        tracing::warn!("{}: only its first MiB is read", path.display());
    }
    let ranges = Arc::new(Ranges::parse(&String::from_utf8_lossy(&bytes)));
    *loaded = Some(Loaded {
        version,
        ranges: Arc::clone(&ranges),
    });
    Ok(ranges)
}

/// Subordinate ids and their accounts, in the order of the ids.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ranges(Vec<(Range<u32>, u32)>);

impl Ranges {
    /// Lines of `NAME:FIRST:COUNT`. Others are left out. If two lines have an id, it belongs to the one that begins first.
    fn parse(text: &str) -> Self {
        let mut all: Vec<(Range<u32>, u32)> = Vec::new();
        let mut accounts: HashMap<&str, u32> = HashMap::new();
        for line in text.lines() {
            let mut fields = line.split(':');
            let (Some(name), Some(first), Some(count), None) =
                (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let (Ok(first), Ok(count)) = (first.trim().parse::<u32>(), count.trim().parse::<u32>())
            else {
                continue;
            };
            if OF_MANY.contains(&name) || first == 0 {
                continue;
            }
            let account = *accounts.entry(name).or_insert(first);
            all.push((first..first.saturating_add(count), account));
        }
        all.sort_by_key(|(range, _)| range.start);
        let mut end = 0;
        for (range, _) in &mut all {
            range.start = range.start.max(end);
            end = end.max(range.end);
        }
        all.retain(|(range, _)| !range.is_empty());
        Self(all)
    }

    fn account(&self, uid: u32) -> u32 {
        let after = self.0.partition_point(|(range, _)| range.start <= uid);
        let last = after.checked_sub(1).map(|at| &self.0[at]);
        let own = last.filter(|(range, _)| range.contains(&uid));
        own.map_or(uid, |(_, account)| *account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_ids_of_a_user_are_one_account() {
        let ranges = Ranges::parse(
            "alice:100000:65536\nbob:165536:65536\nalice:300000:10\nroot:400000:65536\n\
             dockremap:500000:65536\ncarol:600000:70\ndave:600010:0\nerin:600010:5\n",
        );
        for (uid, account) in [
            (0, 0),
            (1000, 1000),
            (99_999, 99_999),
            (100_000, 100_000),
            (165_535, 100_000),
            (165_536, 165_536),
            (231_071, 165_536),
            (231_072, 231_072),
            (300_009, 100_000),
            (300_010, 300_010),
            (400_001, 400_001),
            (500_001, 500_001),
            (600_005, 600_000),
            (600_020, 600_000),
            (600_070, 600_070),
            (u32::MAX, u32::MAX),
        ] {
            assert_eq!(ranges.account(uid), account, "{uid}");
        }
    }

    #[test]
    fn lines_of_another_form_are_left_out() {
        let ranges = Ranges::parse("\nalice\nbob:x:1\ncarol:1:2:3\n0:5:9\ndave:0:9\n# eve:7:1x\n");
        assert_eq!(ranges, Ranges::default());
        let last = Ranges::parse("frank:4294967290:100\n");
        assert_eq!(last.account(u32::MAX - 1), 4_294_967_290);
    }

    #[test]
    fn the_file_is_read_again_after_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("subuid");
        let loaded = Mutex::new(None);
        let account = |uid| ranges(&loaded, &file).map(|ranges| ranges.account(uid));
        assert!(account(100_007).is_err());
        std::fs::write(&file, "alice:100000:65536\n").unwrap();
        assert_eq!(account(100_007).unwrap(), 100_000);
        let same = Arc::as_ptr(&loaded.lock().as_ref().unwrap().ranges);
        assert_eq!(account(100_008).unwrap(), 100_000);
        let again = Arc::as_ptr(&loaded.lock().as_ref().unwrap().ranges);
        assert_eq!(same, again);
        std::fs::write(&file, "alice:200000:65536\nbob:100000:1000\n").unwrap();
        assert_eq!(account(200_007).unwrap(), 200_000);
        assert_eq!(account(101_007).unwrap(), 101_007);
    }

    #[test]
    fn no_more_than_a_mebibyte_of_the_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("subuid");
        let mut text = "alice:100000:65536\n".to_owned();
        text += &"#\n".repeat(LONGEST as usize / 2);
        text += "bob:200000:65536\n";
        std::fs::write(&file, text).unwrap();
        let ranges = ranges(&Mutex::new(None), &file).unwrap();
        assert_eq!(
            (ranges.account(100_007), ranges.account(200_007)),
            (100_000, 200_007)
        );
    }
}
