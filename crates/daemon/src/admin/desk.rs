//! A vendor's module at an administrator's hands: in a process of its own, with the member's
//! environment, so that one that crashes or hangs takes nothing along.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hsmux_module::Options;
use hsmux_pool::config::Member;
use hsmux_token::{Error, Kind, Result, Secret};
use minicbor::{Decode, Encode};

/// The argument that makes `hsmux` such a process.
pub const ARGUMENT: &str = "desk";

const PATIENCE: Duration = Duration::from_secs(60);

/// What is to be done, on standard input.
#[derive(Encode, Decode)]
#[cbor(array)]
struct Order {
    #[n(0)]
    options: Options,
    #[n(1)]
    new_pin: Secret,
}

/// What came of it, on standard output.
type Report = Result<(), Error>;

/// Changes a member's PIN from that in `options` to `new`.
pub fn change_pin(program: &Path, member: &Member, options: Options, new: &Secret) -> Result<()> {
    let failed = |what: &str, e: &dyn std::fmt::Display| {
        Error::pool(Kind::Environment, format!("{}: {what}: {e}", member.name))
    };
    let order = Order {
        options,
        new_pin: new.clone(),
    };
    let order = minicbor::to_vec(&order).map_err(|e| failed("cannot be encoded", &e))?;
    let mut child = Command::new(program)
        .arg(ARGUMENT)
        .envs(member.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed(&format!("cannot start {}", program.display()), &e))?;
    let order = Secret::new(order);
    if let Some(mut stdin) = child.stdin.take() {
        // A child that is gone already is seen by its missing report.
        let _ = stdin.write_all(order.expose());
    }
    let report = read_report(&mut child);
    minicbor::decode::<Report>(&report).unwrap_or_else(|_| {
        let status = child
            .wait()
            .map_or_else(|e| e.to_string(), |status| status.to_string());
        let message = format!(
            "{}: the module crashed or hung while the PIN was changed ({status}); which PIN the \
             token has now is found out by the next rotation",
            member.name
        );
        Err(Error::token(Kind::Lost, message))
    })
}

/// What the child writes until it ends; ended by force when that takes too long.
fn read_report(child: &mut Child) -> Vec<u8> {
    let Some(mut stdout) = child.stdout.take() else {
        return Vec::new();
    };
    let reader = thread::spawn(move || {
        let mut report = Vec::new();
        let _ = stdout.read_to_end(&mut report);
        report
    });
    let end = Instant::now() + PATIENCE;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > end {
            let _ = child.kill();
        }
        thread::sleep(Duration::from_millis(5));
    }
    reader.join().unwrap_or_default()
}

/// The process: reads an order, carries it out, reports.
pub fn desk_main() -> ExitCode {
    let mut order = Vec::new();
    if std::io::stdin().read_to_end(&mut order).is_err() {
        return ExitCode::FAILURE;
    }
    let order = Secret::new(order);
    let report: Report = match minicbor::decode::<Order>(order.expose()) {
        Ok(order) => hsmux_module::change_pin(&order.options, &order.new_pin),
        Err(e) => Err(Error::protocol(format!("not an order: {e}"))),
    };
    let written = minicbor::to_vec(&report)
        .map_err(std::io::Error::other)
        .and_then(|report| std::io::stdout().write_all(&report));
    if written.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
