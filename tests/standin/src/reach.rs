//! Attempts to leave the sandbox.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::control::ControlFile;

/// Makes all attempts of the control file, and records the results.
pub fn try_all(control: &ControlFile) {
    let Some(state) = control
        .tokens
        .first()
        .and_then(|token| token.state.as_ref())
    else {
        return;
    };
    if control.reach.is_empty() {
        return;
    }
    let tried = control.reach.iter().map(|what| match reach(what) {
        Ok(()) => format!("{what} yes\n"),
        Err(_) => format!("{what} no\n"),
    });
    let tried: String = tried.collect();
    let _ = fs::write(state.join("reached"), tried);
}

fn reach(what: &str) -> io::Result<()> {
    let (how, place) = what.split_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    match how {
        "read" => fs::read(place).map(drop),
        "write" => OpenOptions::new().append(true).open(place).map(drop),
        "connect" => TcpStream::connect(place).map(drop),
        "device" => {
            // The kind and numbers of /dev/zero (Linux, Documentation/admin-guide/devices.txt).
            let zero = rustix::fs::makedev(1, 5);
            let mode = Mode::RUSR | Mode::WUSR;
            Ok(mknodat(CWD, place, FileType::CharacterDevice, mode, zero)?)
        }
        "socket" => UnixStream::connect(place).map(drop),
        "run" => Command::new(place).status().map(drop),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}
