//! The state folder, and what of it is left when the daemon dies.

use std::fs;
use std::path::PathBuf;

use hsmux_token::fake::Random;

/// The files of `replicate` that a later daemon reads.
const FILES: [&str; 3] = ["journal.jsonl", "transport.json", "transport.key"];

/// The folder of the transport keys' pins and of the journal, one for each life of the daemon.
pub(super) struct Disk {
    root: PathBuf,
    life: u64,
    /// So much of the journal is certain to last.
    durable: u64,
    /// As the daemon that died has left the files.
    left: Vec<(&'static str, Vec<u8>)>,
}

impl Disk {
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            life: 0,
            durable: 0,
            left: Vec::new(),
        }
    }

    /// The state folder.
    pub fn folder(&self) -> PathBuf {
        self.root.join(self.life.to_string())
    }

    /// The journal as it is now.
    pub fn journal(&self) -> Vec<u8> {
        self.read(FILES[0]).unwrap_or_default()
    }

    /// The journal is this long.
    pub fn written(&mut self, len: u64, is_synced: bool) {
        if is_synced {
            self.durable = len;
        }
    }

    /// The daemon dies: some of what was not synced is lost, and a line may be torn.
    pub fn freeze(&mut self, random: &mut Random) {
        let files = FILES
            .iter()
            .filter_map(|name| Some((*name, self.read(name)?)));
        self.left = files.collect();
        if let Some((name, journal)) = self.left.first_mut()
            && *name == FILES[0]
        {
            let unsure = (journal.len() as u64).saturating_sub(self.durable);
            if random.one_in(2) {
                journal.truncate((self.durable + random.below(unsure + 1)) as usize);
            }
        }
    }

    /// A new folder with the files that were left.
    pub fn recover(&mut self) {
        let old = self.folder();
        self.life += 1;
        let folder = self.folder().join("replicate");
        hsmux_state::private_folder(&folder).expect("a folder for the next life");
        for (name, bytes) in std::mem::take(&mut self.left) {
            if name == FILES[0] {
                let lines = bytes.iter().rposition(|byte| *byte == b'\n');
                self.durable = lines.map_or(0, |end| end as u64 + 1);
            }
            hsmux_token::fake::write_secret(&folder.join(name), bytes);
        }
        // What a dead daemon's folder has is of no interest.
        let _ = fs::remove_dir_all(old);
    }

    /// The pins are removed, as the message of a token without its transport key says.
    pub fn forget_pins(&self) {
        let pins = self.folder().join("replicate").join(FILES[1]);
        hsmux_state::remove(&pins).expect("a file is removed");
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.folder().join("replicate").join(name)).ok()
    }
}
