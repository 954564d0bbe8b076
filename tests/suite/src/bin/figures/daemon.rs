//! What the daemon itself needs: memory under 200 callers, and CPU when nobody calls.

use std::fmt;
use std::fs;
use std::time::Duration;

use hsmux_suite::{Rig, Setup};
use hsmux_token::Result;

use crate::client::Client;

/// What was found.
pub struct Footprint {
    /// Peak memory of the daemon, in kB (VmHWM of proc(5)).
    peak_kb: u64,
    /// CPU time that the daemon and its workers used while idle, in ticks of 10 ms.
    idle_ticks: u64,
}

const IDLE: Duration = Duration::from_secs(5);

/// 200 callers on three SoftHSM tokens, then nobody.
pub fn footprint() -> Result<Footprint> {
    let mut rig = Rig::new(Setup::Daemon);
    Client::of(&rig).sign(200, 30_000)?;
    let daemon = rig.daemon.as_ref().expect("a daemon").id();
    let peak_kb = peak_kb(daemon);
    let processes: Vec<u32> = rig.workers().into_iter().chain([daemon]).collect();
    let ticks = || processes.iter().map(|pid| ticks(*pid)).sum::<u64>();
    let before = ticks();
    std::thread::sleep(IDLE);
    let idle_ticks = ticks() - before;
    rig.stop();
    Ok(Footprint {
        peak_kb,
        idle_ticks,
    })
}

fn peak_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the daemon's status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .expect("VmHWM")
}

/// utime and stime of proc(5): the 14th and 15th field, counted from behind the program's name.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    let fields = fields.split(' ').skip(11).take(2);
    fields
        .map(|field| field.parse::<u64>().expect("a number"))
        .sum()
}

impl Footprint {
    /// Whether both bounds are kept.
    pub fn reached(&self) -> bool {
        self.peak_kb < 64 * 1024 && self.idle_ticks == 0
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = |kept| if kept { "reached" } else { "MISSED" };
        let peak = self.peak_kb as f64 / 1024.0;
        writeln!(f, "The daemon itself, three SoftHSM tokens\n")?;
        writeln!(
            f,
            "peak memory under 200 callers   {peak:.1} MB   goal < 64 MB   {}",
            verdict(self.peak_kb < 64 * 1024)
        )?;
        writeln!(
            f,
            "idle for {} s, workers included   {} ms of CPU   goal 0   {}",
            IDLE.as_secs(),
            self.idle_ticks * 10,
            verdict(self.idle_ticks == 0)
        )
    }
}
