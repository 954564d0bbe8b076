//! What the daemon itself needs: memory under 200 callers, and CPU when nobody calls.

use std::fmt;
use std::fs;
use std::time::Duration;

use hsmux_suite::{Rig, Setup};
use hsmux_token::Result;
use serde::Serialize;

use crate::Effort;
use crate::client::Client;
use crate::page::verdict;
use crate::progress::Turns;

const CALLERS: usize = 200;
const MOST_MEMORY: u64 = 64_000_000;

/// Longer than any deadline of the rig: until then a last timer of what has been may still wake somebody.
const LAST_TIMER: Duration = Duration::from_secs(15);

/// What was found, with three SoftHSM tokens.
#[derive(Serialize)]
pub struct Footprint {
    /// Peak memory of the daemon's process in bytes (VmHWM of proc(5)).
    peak_bytes: u64,
    /// CPU time that the daemon and its workers used while nobody called, in clock ticks of 10 ms.
    idle_ticks: u64,
    /// How often one of their threads was woken meanwhile.
    idle_wakes: u64,
    /// How long nobody called, in seconds.
    idle_s: u64,
}

/// Two hundred callers, then nobody.
pub fn footprint(effort: Effort) -> Result<Footprint> {
    let mut rig = Rig::new(Setup::Daemon);
    let mut turns = Turns::new([effort.turn, LAST_TIMER + effort.idle]);
    turns.next("200 callers");
    Client::of(&rig).sign(CALLERS, effort.turn)?;
    let daemon = rig.daemon.as_ref().expect("a daemon").id();
    let peak_bytes = peak_memory(daemon);
    let processes: Vec<u32> = rig.workers().into_iter().chain([daemon]).collect();
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
    Ok(Footprint {
        peak_bytes,
        idle_ticks,
        idle_wakes,
        idle_s: effort.idle.as_secs(),
    })
}

/// CPU ticks of a process, and how often its threads have slept.
fn usage(pid: u32) -> (u64, u64) {
    // The 14th and 15th field of proc(5), counted from behind the program's name.
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

/// The most memory that a process has held, in bytes.
pub fn peak_memory(pid: u32) -> u64 {
    field(&read(pid, "status"), "VmHWM:") * 1024
}

fn read(pid: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a running process")
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).expect(name)
}

impl Footprint {
    /// Whether both bounds are kept.
    pub fn reached(&self) -> bool {
        self.is_small() && self.is_idle()
    }

    /// Its lines of the table of figures.
    pub fn rows(&self) -> [[String; 5]; 2] {
        let peak = format!("{:.1} MB", self.peak_bytes as f64 / 1e6);
        let idle = format!("{} ms, {} wakes", self.idle_ticks * 10, self.idle_wakes);
        let row = |name: String, value: String, bound: &str, reached| {
            let once = "1".to_owned();
            [name, value, once, bound.to_owned(), verdict(reached).into()]
        };
        [
            row(
                format!("peak memory of the daemon, {CALLERS} callers"),
                peak,
                "under 64 MB",
                self.is_small(),
            ),
            row(
                format!("CPU of daemon and workers, idle for {} s", self.idle_s),
                idle,
                "0",
                self.is_idle(),
            ),
        ]
    }

    fn is_small(&self) -> bool {
        self.peak_bytes < MOST_MEMORY
    }

    fn is_idle(&self) -> bool {
        self.idle_ticks == 0 && self.idle_wakes == 0
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "The daemon itself, three SoftHSM tokens\n")?;
        for [name, value, _, goal, verdict] in self.rows() {
            writeln!(f, "{name}: {value}   goal {goal}   {verdict}")?;
        }
        Ok(())
    }
}
