//! The cost of foreign key changes in old modules: after one, SoftHSM before 2.4.0 read the token's folder again at each
//! use of a key, under a lock, until the process ended.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::Deserialize;

/// The cost of an operation after a foreign change. The defaults fit the published rates
/// (`crates/bench/reference/softhsm-key-churn.csv`).
#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Cost {
    /// The constant part, in microseconds.
    pub base_us: u64,
    /// For each object of the token, in nanoseconds.
    pub each_ns: u64,
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            base_us: 29,
            each_ns: 4_900,
        }
    }
}

/// Two changes within one tick of the kernel's clock give a folder the same time.
const TICK: Duration = Duration::from_millis(20);

/// This process's view of a token's store.
#[derive(Default)]
pub struct Churn(Mutex<ChurnStore>);

#[derive(Default)]
struct ChurnStore {
    /// SoftHSM's folder of the token; without it no operation is slow.
    folder: Option<PathBuf>,
    /// The last change of the folder, if a later one would have another time.
    stamp: Option<SystemTime>,
    /// The files of its objects.
    objects: BTreeSet<OsString>,
    /// Whether another process has changed the store.
    slow: bool,
}

impl Churn {
    /// Starts to watch the folder that the first caller names.
    pub fn watch(&self, folder: impl FnOnce() -> Option<PathBuf>) {
        let mut store = self.0.lock();
        if store.folder.is_none() {
            store.folder = folder();
            store.take_over();
        }
    }

    /// The current cost of an operation, in nanoseconds.
    pub fn cost(&self, cost: &Cost) -> u64 {
        let mut store = self.0.lock();
        store.look();
        if store.slow {
            cost.base_us * 1000 + cost.each_ns * store.objects.len() as u64
        } else {
            0
        }
    }

    /// Makes a change by this process, which is no foreign one.
    pub fn change<T>(&self, change: impl FnOnce() -> T) -> T {
        let mut store = self.0.lock();
        store.look();
        let changed = change();
        store.take_over();
        changed
    }
}

impl ChurnStore {
    /// Detects a foreign change.
    fn look(&mut self) {
        if self.stamp.is_some() && self.modified() == self.stamp {
            return;
        }
        let before = std::mem::take(&mut self.objects);
        self.take_over();
        self.slow |= self.objects != before;
    }

    /// Takes over the current state of the store.
    fn take_over(&mut self) {
        let Some(folder) = &self.folder else { return };
        let now = SystemTime::now();
        let modified = self.modified();
        self.objects = objects(folder);
        self.stamp = modified.filter(|at| now.duration_since(*at).is_ok_and(|age| age > TICK));
    }

    fn modified(&self) -> Option<SystemTime> {
        fs::metadata(self.folder.as_ref()?).ok()?.modified().ok()
    }
}

/// The files of keys and certificates; `token.object` is the token itself.
fn objects(folder: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let of_object = |name: &OsString| {
        let path = Path::new(name);
        path.extension().is_some_and(|kind| kind == "object") && name != "token.object"
    };
    names.filter(of_object).collect()
}

/// SoftHSM's folder of the token with this serial number, which is the end of the folder's name (a UUID).
pub fn folder_of(serial: &str) -> Option<PathBuf> {
    let tokens = fs::read_dir(folder_of_tokens()?).ok()?;
    let folders = tokens.flatten().map(|entry| entry.path());
    let mut folders = folders.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !serial.is_empty() && name.replace('-', "").ends_with(serial)
    });
    folders.next()
}

/// `directories.tokendir` of softhsm2.conf.
fn folder_of_tokens() -> Option<PathBuf> {
    let conf = std::env::var_os("SOFTHSM2_CONF")?;
    let text = fs::read_to_string(conf).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    lines
        .find(|(name, _)| name.trim() == "directories.tokendir")
        .map(|(_, value)| value.trim().into())
}
