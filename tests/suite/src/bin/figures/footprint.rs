//! The needs of the daemon and its workers: memory under 200 callers, and CPU while idle.

use std::fs;
use std::time::Duration;

use hsmux_suite::{Rig, Setup};
use hsmux_token::Result;

use crate::Effort;
use crate::client::BenchClient;
use crate::fact::Fact;
use crate::progress::Turns;

const CALLERS: usize = 200;
/// The memory limits in MB: of the daemon, and of all processes.
const MOST_OF_DAEMON: f64 = 64.0;
const MOST_OF_ALL: f64 = 100.0;

/// Longer than any deadline of the rig, so that no old timer wakes a thread later.
const LAST_TIMER: Duration = Duration::from_secs(15);

/// Two hundred callers, then none. CPU is counted in clock ticks of 10 ms.
pub fn footprint(effort: Effort) -> Result<Vec<Fact>> {
    let mut rig = Rig::new(Setup::Daemon);
    let mut turns = Turns::new([effort.turn, LAST_TIMER + effort.idle]);
    turns.next("200 callers");
    let served = BenchClient::of(&rig).sign(CALLERS, effort.turn)?;
    let daemon = rig.daemon.as_ref().expect("a daemon").id();
    let processes: Vec<u32> = rig.workers().into_iter().chain([daemon]).collect();
    let peak_mb = |pid: u32| peak_memory(pid) as f64 / 1e6;
    let peak_of_daemon = peak_mb(daemon);
    let peak_of_all: f64 = processes.iter().copied().map(peak_mb).sum();
    let usage = || processes.iter().map(|pid| usage(*pid));
    turns.next("nobody");
    std::thread::sleep(LAST_TIMER);
    let before: Vec<_> = usage().collect();
    std::thread::sleep(effort.idle);
    let spent = before.into_iter().zip(usage());
    let (idle_ticks, idle_wakes) = spent.fold((0, 0), |sum, (before, after)| {
        (sum.0 + after.0 - before.0, sum.1 + after.1 - before.1)
    });
    rig.stop();
    let idle = format!("daemon and workers, idle for {} s", effort.idle.as_secs());
    let ticks_ms = idle_ticks as f64 * 10.0;
    let peak = |whose| format!("peak memory of {whose}, {CALLERS} callers");
    Ok(vec![
        Fact::new(
            format!("signatures, {CALLERS} callers"),
            served.ops as f64,
            "signatures",
        )
        .at_least(1.0),
        Fact::new(
            format!("failed, {CALLERS} callers"),
            (served.failed + served.wrong) as f64,
            "signatures",
        )
        .at_most(0.0),
        Fact::new(peak("the daemon"), peak_of_daemon, "MB").at_most(MOST_OF_DAEMON),
        Fact::new(peak("daemon and workers"), peak_of_all, "MB").at_most(MOST_OF_ALL),
        Fact::new(format!("CPU of {idle}"), ticks_ms, "ms").at_most(0.0),
        Fact::new(
            format!("threads woken of {idle}"),
            idle_wakes as f64,
            "times",
        )
        .at_most(0.0),
    ])
}

/// CPU ticks of a process, and the number of its threads' sleeps.
fn usage(pid: u32) -> (u64, u64) {
    // The 14th and 15th field of proc(5), counted after the program's name.
    let stat = read(pid, "stat");
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    let fields = fields.split(' ').skip(11).take(2);
    let ticks = fields.map(|field| field.parse::<u64>().expect("a number"));
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let sleeps = threads.flatten().map(|thread| {
        let status = fs::read_to_string(thread.path().join("status"));
        status.map_or(0, |status| field(&status, "voluntary_ctxt_switches:"))
    });
    (ticks.sum(), sleeps.sum())
}

/// The peak memory of a process, in bytes.
pub fn peak_memory(pid: u32) -> u64 {
    field(&read(pid, "status"), "VmHWM:") * 1024
}

/// The threads of a process.
pub fn threads(pid: u32) -> u64 {
    field(&read(pid, "status"), "Threads:")
}

fn read(pid: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a running process")
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).expect(name)
}
