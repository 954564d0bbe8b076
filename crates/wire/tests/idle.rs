//! An idle server costs nothing. A program of its own, for it measures this process's threads by name.

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;

use common::*;
use hsmux_wire::{Client, Reactor};

#[test]
fn an_idle_reactor_does_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let reactor = Reactor::start().unwrap();
    let _listening = listen(&reactor, &path, &Daemon::new(remote(&reactor, 2)));
    let client = Client::connect(endpoint(&path), "test").unwrap();
    client.execute(&sign(b"warm"), soon()).unwrap();

    let before = cpu_of("hsmux-reactor");
    let mut peer = UnixStream::connect(&path).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    // Five seconds in which there is nothing to do but to wait for the greeting.
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    let spent = cpu_of("hsmux-reactor") - before;
    assert!(spent <= 2, "{spent} clock ticks");
}

/// utime and stime of this process's threads of a name, in clock ticks (proc_pid_stat(5)).
fn cpu_of(name: &str) -> u64 {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let ticks = threads.filter_map(|thread| {
        let stat = fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
        let (before, after) = stat.rsplit_once(") ")?;
        let fields: Vec<_> = after.split(' ').collect();
        let of_it = before.ends_with(name);
        of_it.then(|| fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
    });
    ticks.sum()
}
