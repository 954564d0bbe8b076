//! Changes a member's PIN in a process of its own, with the member's environment. If the module crashes or hangs, only
//! that process ends.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use hsmux_module::Options;
use hsmux_token::{Error, Kind, Result, Secret};
use hsmux_worker::{Environment, Sandbox, keep_secrets, lock_memory, take_stdin};
use minicbor::{Decode, Encode};

use crate::child::end_of;

/// The hidden argument with which `hsmux` becomes this process.
pub const ARGUMENT: &str = "desk";

/// The longest duration of a PIN change.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest time for a killed process to end, if it does not hang in a driver.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// The longest wait for the report after the process has ended.
const READ_WITHIN: Duration = Duration::from_secs(1);

/// The longest report: an error with its message is much shorter.
const LONGEST_REPORT: u64 = 64 * 1024;

/// The longest order: paths, names and PINs are much shorter.
const LONGEST_ORDER: usize = 64 * 1024;

/// The order, on standard input.
#[derive(Encode, Decode)]
#[cbor(array)]
struct PinChangeOrder {
    #[n(0)]
    options: Options,
    #[n(1)]
    new_pin: Secret,
    #[n(2)]
    sandbox: Sandbox,
}

/// The result, on standard output.
type Report = Result<(), Error>;

/// Changes a member's PIN from that in `options` to `new`.
pub fn change_pin(
    program: &Path,
    environment: &Environment,
    options: Options,
    sandbox: Sandbox,
    new: &Secret,
) -> Result<()> {
    let member = options.name.clone();
    let failed = |what: &str, e: &dyn std::fmt::Display| {
        Error::pool(Kind::Environment, format!("{member}: {what}: {e}"))
    };
    let order = PinChangeOrder {
        options,
        new_pin: new.clone(),
        sandbox,
    };
    let mut written = Vec::with_capacity(LONGEST_ORDER);
    minicbor::encode(&order, &mut written).map_err(|e| failed("cannot be encoded", &e))?;
    let order = Secret::new(written);
    let mut child = environment
        .apply(&mut Command::new(program))
        .arg(ARGUMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed(&format!("cannot start {}", program.display()), &e))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If the child has already ended, its report is missing.
        let _ = stdin.write_all(order.expose());
    }
    let (report, fate) = read_report(child, PATIENCE, |child| {
        let _ = child.kill();
    });
    minicbor::decode::<Report>(&report).unwrap_or_else(|_| {
        let message = format!(
            "{member}: the module crashed or hung while the PIN was changed ({fate}); which PIN the \
             token has now is found out by the next rotation"
        );
        Err(Error::token(Kind::Lost, message))
    })
}

/// Reads the child's output until it ends. Answers the output and how the child ended. A child that takes too long is
/// killed, and if it does not end then, it is left alone.
fn read_report(
    mut child: Child,
    patience: Duration,
    kill: impl FnOnce(&mut Child),
) -> (Vec<u8>, String) {
    let (tell, told) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || tell_report(stdout, &tell));
    }
    let mut ended = end_of(&mut child, Instant::now() + patience);
    if ended.is_none() {
        kill(&mut child);
        ended = end_of(&mut child, Instant::now() + KILLED_WITHIN);
    }
    let fate = ended.unwrap_or_else(|| {
        // A thread has to wait for its end, or it stays a zombie.
        thread::spawn(move || child.wait());
        "it hangs in the kernel, and does not end though it was killed".into()
    });
    // A process that the module started may have inherited the pipe and keep it open.
    let until = Instant::now() + READ_WITHIN;
    let mut report = Vec::new();
    while let Ok(part) = told.recv_timeout(until.saturating_duration_since(Instant::now())) {
        report.extend_from_slice(&part);
    }
    (report, fate)
}

fn tell_report(stdout: impl Read, tell: &Sender<Vec<u8>>) {
    let mut stdout = stdout.take(LONGEST_REPORT);
    let mut part = [0; 4096];
    while let Ok(len) = stdout.read(&mut part) {
        if len == 0 || tell.send(part[..len].to_vec()).is_err() {
            return;
        }
    }
}

fn hear_order() -> io::Result<Secret> {
    // A buffer that grows would leave copies of the PINs in memory.
    let mut order = Vec::with_capacity(LONGEST_ORDER);
    let read = File::from(take_stdin()?)
        .take(LONGEST_ORDER as u64)
        .read_to_end(&mut order);
    let order = Secret::new(order);
    read.map(|_| order)
}

/// The main function of the process: reads an order, carries it out, reports.
pub fn pin_change_main() -> ExitCode {
    keep_secrets();
    lock_memory();
    let Ok(order) = hear_order() else {
        return ExitCode::FAILURE;
    };
    let report: Report = match minicbor::decode::<PinChangeOrder>(order.expose()) {
        Ok(PinChangeOrder {
            options,
            new_pin,
            sandbox,
        }) => sandbox
            .enter(options)
            .and_then(|options| hsmux_module::change_pin(&options, &new_pin)),
        Err(e) => Err(Error::protocol(format!("not an order: {e}"))),
    };
    let written = minicbor::to_vec(&report)
        .map_err(io::Error::other)
        .and_then(|report| io::stdout().write_all(&report));
    if written.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Child {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).stdout(Stdio::piped());
        shell.spawn().unwrap()
    }

    fn is_there(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn one_that_ends_has_its_report_read_also_where_the_pipe_stays_open() {
        let begun = Instant::now();
        // The shell prints the number of the process that stays.
        let child = shell("sleep 1000 & printf %s $!");
        let (report, fate) = read_report(child, PATIENCE, |_| panic!("it has ended"));
        assert_eq!(fate, "exit status: 0");
        assert!(begun.elapsed() < PATIENCE);
        let other = String::from_utf8(report).unwrap();
        assert!(is_there(other.parse().unwrap()));
        Command::new("kill").arg(other).status().unwrap();
    }

    #[test]
    fn one_that_cannot_be_killed_is_left_to_itself() {
        let child = shell("printf half; exec sleep 1000");
        let pid = child.id();
        let (report, fate) = read_report(child, Duration::ZERO, |_| {});
        assert_eq!(report, b"half");
        assert!(fate.contains("does not end though it was killed"), "{fate}");
        Command::new("kill").arg(pid.to_string()).status().unwrap();
        let end = Instant::now() + 2 * PATIENCE;
        while is_there(pid) {
            assert!(Instant::now() < end, "it stays a zombie");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn one_that_hangs_is_killed() {
        let child = shell("exec sleep 1000");
        let kill = |child: &mut Child| child.kill().unwrap();
        let (report, fate) = read_report(child, Duration::ZERO, kill);
        assert!(report.is_empty());
        assert!(fate.contains("signal: 9"), "{fate}");
    }
}
