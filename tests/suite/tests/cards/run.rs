//! `hsmux vcard`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hsmux_suite::{
    Cards, OPENSC, PATIENCE, Process, Program, Run, built, copy_program, running, until,
};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// Cards that run, and the environment that they have printed.
struct Running {
    process: Process,
    environment: Vec<(String, String)>,
    folder: TempDir,
}

impl Running {
    fn start(options: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), options)
    }

    fn start_in(folder: TempDir, options: &str) -> Self {
        let _ = fs::remove_file(folder.path().join("vcard.log"));
        let run = hsmux("vcard run").args(options).dir(folder.path());
        let mut process = Process::start("vcard", folder.path(), run);
        process.wait_for("export HSMUX_VCARD=");
        let log = process.log();
        let export = |line: &str| {
            let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
            Some((name.to_owned(), value.trim_matches('\'').to_owned()))
        };
        Self {
            process,
            environment: log.lines().filter_map(export).collect(),
            folder,
        }
    }

    /// A program in the printed environment.
    fn with(&self, run: Run) -> Run {
        let run = run.dir(self.folder.path());
        self.environment
            .iter()
            .fold(run, |run, (name, value)| run.env(name, value))
    }

    fn cards_folder(&self) -> &Path {
        let found = self
            .environment
            .iter()
            .find(|(name, _)| name == "HSMUX_VCARD");
        Path::new(&found.expect("in the environment").1)
    }

    /// Every process that has the cards' folder among its arguments.
    fn helpers(&self) -> Vec<String> {
        let folder = self.cards_folder().display().to_string();
        let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        processes
            .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
            .map(|line| String::from_utf8_lossy(&line).into_owned())
            .filter(|line| line.contains(&folder))
            .collect()
    }

    fn nothing_remains(&self) {
        until("all helpers end", PATIENCE, || {
            (self.helpers().is_empty() && !self.cards_folder().exists()).then_some(())
        });
    }
}

fn hsmux(line: &str) -> Run {
    Run::new(built(Program::Hsmux)).args(line)
}

#[test]
fn a_command_sees_the_cards_and_ends_with_its_own_code() {
    hsmux("vcard run --count 3 -- opensc-tool -l")
        .ok()
        .says("protect nothing")
        .says("hsmux virtual")
        .says("2    Yes");
    let run = hsmux("vcard run --count 1 -- sh -c").arg("exit 7").fails();
    assert_eq!(run.code, Some(7), "{run}");
}

/// SIGTERM means the command with all that it has started, even if that does not care for the signal.
#[test]
fn a_signal_ends_the_command_and_what_it_has_started() {
    let folder = tempfile::tempdir().unwrap();
    let script = "sleep 1234 & echo $! > started; trap : TERM; while :; do sleep 0.1; done";
    let run = hsmux("vcard run --count 1 -- sh -c")
        .arg(script)
        .dir(folder.path());
    let mut cards = Process::start("cards", folder.path(), run);
    let started = until("the command runs", PATIENCE, || {
        let pid = fs::read_to_string(folder.path().join("started")).ok()?;
        pid.trim().parse().ok()
    });
    cards.signal(Signal::TERM);
    assert!(!cards.wait().success());
    until("its child has ended", PATIENCE, || {
        (!running(started)).then_some(())
    });
}

/// Without the right to make a network namespace it works, too, and says what that means.
#[test]
fn another_user_is_told_that_the_ports_are_open() {
    let folder = for_everybody();
    Run::new("setpriv")
        .args(NOBODY)
        .arg(folder.path().join("hsmux"))
        .args("vcard run --count 2 -- opensc-tool -l")
        .dir(folder.path())
        .ok()
        .says("all interfaces")
        .says("1    Yes");
}

/// To the PC/SC library that is as if there were no pcscd.
#[test]
fn a_user_whom_pcscd_refuses_is_told_so() {
    let folder = for_everybody();
    hsmux("vcard run --count 1 -- setpriv")
        .args(NOBODY)
        .arg(folder.path().join("hsmux"))
        .args("card list")
        .dir(folder.path())
        .fails()
        .says("not permitted to use smart cards");
}

/// Options of setpriv.
const NOBODY: &str = "--reuid 65534 --regid 65534 --clear-groups --";

/// A folder with the programs that any user may run.
fn for_everybody() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let everybody = |mode| Permissions::from_mode(mode);
    fs::set_permissions(folder.path(), everybody(0o755)).unwrap();
    for program in [Program::Hsmux, Program::Lab].map(built) {
        let copy = folder.path().join(program.file_name().unwrap());
        copy_program(&program, &copy);
        fs::set_permissions(&copy, everybody(0o755)).unwrap();
    }
    folder
}

#[test]
fn more_cards_than_pcscd_takes_are_refused() {
    hsmux("vcard run --count 17").fails().says("16");
}

#[test]
fn every_signal_takes_all_of_it_down() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL] {
        let mut running = Running::start("--count 1");
        assert_eq!(running.helpers().len(), 2, "{:?}", running.helpers());
        assert!(running.cards_folder().exists());
        running.process.signal(signal);
        let status = running.process.wait();
        assert_eq!(status.success(), signal != Signal::KILL, "{status}");
        running.nothing_remains();
    }
}

#[test]
fn cards_are_pulled_and_plugged_in_on_order() {
    let running = Running::start("--count 2");
    let order = |line: &str| running.with(hsmux(line).args("--json")).ok();
    let plugged = |line: &str| -> Vec<bool> {
        let answer = order(line);
        let cards: Vec<Value> = serde_json::from_str(&answer.out).expect("JSON");
        cards.iter().map(|card| card["plugged"] == true).collect()
    };
    assert_eq!(plugged("vcard list"), [true, true]);
    assert_eq!(plugged("vcard fault 1 unplug"), [true, false]);
    until("pcscd notices", PATIENCE, || {
        let list = running.with(Run::new("opensc-tool").args("-l")).ok();
        (list.out.matches(" Yes ").count() == 1).then_some(())
    });
    assert_eq!(plugged("vcard fault 1 plug"), [true, true]);
    running
        .with(Run::new("opensc-tool").args("--reader 1 --name"))
        .ok();
    running
        .with(hsmux("vcard fault 2 unplug"))
        .fails()
        .says("no card 2");
    order("vcard pcscd stop");
    running
        .with(Run::new("opensc-tool").args("--reader 1 --name"))
        .fails();
    order("vcard pcscd start");
    running
        .with(Run::new("opensc-tool").args("--reader 1 --name"))
        .ok();
}

#[test]
fn a_state_folder_keeps_the_cards() {
    let mut running = Running::start("--count 1 --state cards");
    let initialise = format!(
        "--initialize --label kept --so-pin {} --pin {}",
        Cards::SO_PIN,
        Cards::PIN
    );
    running.with(Run::new("sc-hsm-tool").args(&initialise)).ok();
    let tool = |running: &Running, line: &str| {
        let run = Run::new("pkcs11-tool")
            .args(&format!("--module {OPENSC} --login --pin {}", Cards::PIN));
        running.with(run.args(line)).ok()
    };
    tool(
        &running,
        "--keypairgen --key-type EC:prime256v1 --id 10 --label ec",
    );
    running.process.kill();
    let Running { folder, .. } = running;

    let running = Running::start_in(folder, "--count 1 --state cards");
    tool(&running, "-O")
        .says("Private Key Object; EC")
        .says("label:      ec");
    // One folder of cards is in one run only.
    running
        .with(hsmux("vcard run --count 1 --state cards"))
        .fails()
        .says("in use");
}
