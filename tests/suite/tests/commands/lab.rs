//! `hsmux bench` and `hsmux vcard` are commands of `hsmux-lab`, which has to be beside `hsmux`.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use hsmux_suite::{Process, Program, Run, built, copy_program};
use rustix::process::Signal;
use tempfile::TempDir;

/// A folder with a copy of `hsmux` alone.
fn alone() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy_program(&built(Program::Hsmux), &folder.path().join("hsmux"));
    folder
}

/// Puts a script in the place of `hsmux-lab`.
fn script(folder: &TempDir, text: &str) {
    let source = folder.path().join("script");
    fs::write(&source, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&source, Permissions::from_mode(0o755)).unwrap();
    copy_program(&source, &folder.path().join("hsmux-lab"));
}

fn hsmux(folder: &TempDir, line: &str) -> Run {
    Run::new(folder.path().join("hsmux")).args(line)
}

#[test]
fn a_missing_program_is_named_and_how_to_get_it() {
    let folder = alone();
    let missing = folder.path().join("hsmux-lab").display().to_string();
    // It is in a folder of PATH, where nobody looks for it.
    let built = built(Program::Lab);
    let programs = built.parent().map(Path::as_os_str).unwrap();
    for line in [
        "bench",
        "bench sign",
        "bench --help",
        "--json vcard list",
        "help vcard run",
    ] {
        let run = hsmux(&folder, line).env("PATH", programs).fails();
        assert_eq!(run.code, Some(1), "{run}");
        run.says(&missing).says("make install");
    }
    // All else is there.
    hsmux(&folder, "--help").ok().says("bench").says("vcard");
    hsmux(&folder, "config example").ok();
}

#[test]
fn arguments_environment_and_exit_codes_pass_through() {
    let folder = alone();
    script(&folder, "printf '<%s>' \"$@\" \"$TOLD\"; exit 7");
    for line in [
        "bench",
        "bench sign --json --config none.toml -n 3",
        "--json --config none.toml bench --help",
        "bench -h",
        "bench --version",
        "vcard run --count 1 -- sh -c --help",
        "help bench sign",
    ] {
        let run = hsmux(&folder, line).env("TOLD", "a value").fails();
        assert_eq!(run.code, Some(7), "{run}");
        let words: Vec<_> = line.split(' ').chain(["a value"]).collect();
        assert_eq!(run.out, format!("<{}>", words.join("><")), "{run}");
    }
}

/// It is the same process, so that a signal reaches the measurement, and its end is that of the measurement.
#[test]
fn signals_pass_through() {
    let folder = alone();
    script(
        &folder,
        "trap 'exit 9' USR1; echo \"process $$.\"; while :; do sleep 0.1; done",
    );
    let start = |name: &str| {
        let mut process = Process::start(name, folder.path(), hsmux(&folder, "bench sign"));
        process.wait_for(&format!("process {}.", process.id()));
        process
    };
    let mut caught = start("caught");
    caught.signal(Signal::USR1);
    assert_eq!(caught.wait().code(), Some(9));
    let mut ended = start("ended");
    ended.signal(Signal::TERM);
    assert_eq!(ended.wait().signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn its_help_names_the_program_that_was_typed() {
    let hsmux = |line: &str| Run::new(built(Program::Hsmux)).args(line);
    for line in ["bench sign --help", "help bench sign"] {
        hsmux(line).ok().says("Usage: hsmux bench sign [OPTIONS]");
    }
    hsmux("vcard --help").ok().says("Usage: hsmux vcard ");
    let wrong = hsmux("bench sign --nonsense").fails();
    assert_eq!(wrong.code, Some(2), "{wrong}");
    wrong.says("Usage: hsmux bench sign");
    let lab = Run::new(built(Program::Lab)).args("bench sign --help");
    lab.ok().says("Usage: hsmux-lab bench sign [OPTIONS]");
}

#[test]
fn each_program_has_completions_and_pages_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    for program in [Program::Hsmux, Program::Lab] {
        let made = Run::new(built(program)).arg("man").arg(folder.path());
        made.ok();
    }
    let page = |name: &str| fs::read_to_string(folder.path().join(name)).expect(name);
    assert!(page("hsmux-bench.1").contains("hsmux\\-lab\\-bench(1)"));
    // As people type it.
    let sign = page("hsmux-lab-bench-sign.1");
    assert!(sign.contains("\\fBhsmux bench sign\\fR"), "{sign}");
    let complete = |program| Run::new(built(program)).args("completions bash").ok();
    complete(Program::Lab).says("burn-in").says("hsmux-lab");
    complete(Program::Hsmux).never_says("hsmux-lab,");
}

/// What bash offers after `PROGRAM COMMAND` and a space, options left out.
fn offered(program: Program, name: &str, command: &str) -> BTreeSet<String> {
    let completions = Run::new(built(program)).args("completions bash").ok().out;
    let function = format!("_{}", name.replace('-', "__"));
    let press_tab = format!(
        "COMP_WORDS=({name} {command} ''); COMP_CWORD=2; {function} {name} '' {command}; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let script = format!("{completions}\n{press_tab}");
    let words = Run::new("bash").input(script).ok().out;
    let words = words.lines().filter(|word| !word.starts_with('-'));
    words.map(str::to_owned).collect()
}

#[test]
fn bash_completes_the_commands_of_the_other_program() {
    for command in ["bench", "vcard"] {
        let own = offered(Program::Lab, "hsmux-lab", command);
        assert!(own.len() > 3, "{own:?}");
        assert_eq!(offered(Program::Hsmux, "hsmux", command), own, "{command}");
    }
}
