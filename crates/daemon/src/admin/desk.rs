//! A vendor's module at an administrator's hands: in a process of its own, with the member's
//! environment, so that one that crashes or hangs takes nothing along.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hsmux_module::Options;
use hsmux_pool::process::{Environment, keep_secrets, take_stdin};
use hsmux_token::{Error, Kind, Result, Secret};
use minicbor::{Decode, Encode};

/// The argument that makes `hsmux` such a process.
pub const ARGUMENT: &str = "desk";

const PATIENCE: Duration = Duration::from_secs(60);

/// Paths, names and PINs are much shorter.
const LONGEST_ORDER: usize = 64 * 1024;

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
pub fn change_pin(
    program: &Path,
    environment: &Environment,
    options: Options,
    new: &Secret,
) -> Result<()> {
    let member = options.name.clone();
    let failed = |what: &str, e: &dyn std::fmt::Display| {
        Error::pool(Kind::Environment, format!("{member}: {what}: {e}"))
    };
    let order = Order {
        options,
        new_pin: new.clone(),
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
        // A child that is gone already is seen by its missing report.
        let _ = stdin.write_all(order.expose());
    }
    let report = read_report(&mut child);
    minicbor::decode::<Report>(&report).unwrap_or_else(|_| {
        let status = child
            .wait()
            .map_or_else(|e| e.to_string(), |status| status.to_string());
        let message = format!(
            "{member}: the module crashed or hung while the PIN was changed ({status}); which PIN the \
             token has now is found out by the next rotation"
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

fn hear_order() -> io::Result<Secret> {
    // One that grew would leave copies of the PINs behind.
    let mut order = Vec::with_capacity(LONGEST_ORDER);
    let read = File::from(take_stdin()?)
        .take(LONGEST_ORDER as u64)
        .read_to_end(&mut order);
    let order = Secret::new(order);
    read.map(|_| order)
}

/// The process: reads an order, carries it out, reports.
pub fn desk_main() -> ExitCode {
    keep_secrets();
    let Ok(order) = hear_order() else {
        return ExitCode::FAILURE;
    };
    let report: Report = match minicbor::decode::<Order>(order.expose()) {
        Ok(order) => hsmux_module::change_pin(&order.options, &order.new_pin),
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
