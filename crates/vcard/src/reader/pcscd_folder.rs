//! The folder of running readers: the configuration of pcscd, and files for its clients.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::ReaderError;

/// vpcd, from Debian's package vsmartcard-vpcd.
const DRIVER: &str = "/usr/lib/pcsc/drivers/serial/libifdvpcd.so";

/// Slots of one copy of Debian's driver, on consecutive ports.
const SLOTS: usize = 2;

/// vpcd's default port; in a network namespace all ports are free.
const FIRST_PORT: u16 = 0x8C7B;

/// By default OpenSC shows only the first four cards.
const OPENSC: &str =
    "app opensc-pkcs11 {\n    pkcs11 {\n        max_virtual_slots = 64;\n    }\n}\n";

/// The start of every reader's name.
const READER: &str = "hsmux virtual cards";

/// A folder with pcscd's configuration; it is removed on drop.
pub(super) struct PcscdFolder {
    folder: TempDir,
    /// The port of each slot.
    pub ports: Vec<u16>,
    /// Whether pcscd runs in a network namespace of its own.
    pub isolated: bool,
}

impl PcscdFolder {
    /// Creates the folder, with readers of at least `count` slots.
    pub fn new(folder: TempDir, count: usize) -> Result<Self, ReaderError> {
        if !Path::new(DRIVER).exists() {
            return Err(ReaderError::missing(DRIVER, "vsmartcard-vpcd"));
        }
        let mut pcscd_folder = Self {
            folder,
            ports: Vec::new(),
            isolated: may_isolate(),
        };
        let written = pcscd_folder.write(count.div_ceil(SLOTS));
        match written {
            Ok(()) => Ok(pcscd_folder),
            Err(source) => {
                let what = format!("preparing {}", pcscd_folder.path().display());
                Err(ReaderError::io(what, source))
            }
        }
    }

    fn write(&mut self, drivers: usize) -> std::io::Result<()> {
        fs::create_dir_all(self.file("readers"))?;
        let mut readers = String::new();
        for number in 0..drivers {
            // Two entries of one library hang, so each entry has its own copy.
            let library = self.file(&format!("vpcd{number}.so"));
            fs::copy(DRIVER, &library)?;
            let first = if self.isolated {
                FIRST_PORT + (number * SLOTS) as u16
            } else {
                free_ports(SLOTS as u16)?
            };
            self.ports
                .extend((0..SLOTS as u16).map(|slot| first + slot));
            let (name, library) = (driver_name(number), library.display());
            // In one file: the order of several files would be that of the directory.
            writeln!(
                readers,
                "FRIENDLYNAME \"{name}\"\nDEVICENAME /dev/null:{first}\nLIBPATH {library}\nCHANNELID {first}\n"
            )
            .map_err(std::io::Error::other)?;
        }
        fs::write(self.file("readers/virtual"), readers)?;
        fs::write(self.opensc(), OPENSC)
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// pcscd's socket.
    pub fn socket(&self) -> PathBuf {
        self.file("pcscd.comm")
    }

    /// A configuration of OpenSC that shows all cards.
    pub fn opensc(&self) -> PathBuf {
        self.file("opensc.conf")
    }

    /// The log file of pcscd.
    pub fn log(&self) -> PathBuf {
        self.file("pcscd.log")
    }

    /// The log of pcscd.
    pub fn log_text(&self) -> String {
        let bytes = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// The PC/SC name of the slot with this index.
pub(super) fn reader_name(slot: usize) -> String {
    format!("{} 00 {:02X}", driver_name(slot / SLOTS), slot % SLOTS)
}

/// Whether a PC/SC reader of this name has virtual cards.
pub fn is_virtual(reader: &str) -> bool {
    reader.starts_with(READER)
}

fn driver_name(number: usize) -> String {
    format!("{READER} {}, no protection", (b'A' + number as u8) as char)
}

/// Whether this process may create the namespaces of keep.sh: root, unless it is restricted.
fn may_isolate() -> bool {
    let tried = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c"])
        .arg("ip link set lo up && mount -t tmpfs none /run")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// The first port of `count` consecutive free ports.
fn free_ports(count: u16) -> std::io::Result<u16> {
    let free = |port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
    for _ in 0..64 {
        let first = free(0)?;
        let port = first.local_addr()?.port();
        let rest = (1..count).map(|next| port.checked_add(next).ok_or(()));
        let rest: Result<Vec<_>, ()> = rest.map(|port| free(port?).map_err(drop)).collect();
        if rest.is_ok() {
            return Ok(port);
        }
    }
    Err(std::io::Error::other("no free ports for vpcd"))
}
