//! Worker processes: this program, started again.

mod rig;
mod sandbox;
mod softhsm;
mod turns;

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hsmux_pool::Connector;
use hsmux_token::{Error, Kind, Scope};
use hsmux_worker::{ProcessConnector, worker_main};
use rig::*;

/// Not a test: `current_exe() worker` runs what has the word in its name, which is this alone.
#[test]
fn worker() {
    if std::env::var_os(MARK).is_some() {
        let code = worker_main();
        std::process::exit(i32::from(code != ExitCode::SUCCESS));
    }
}

/// Not a test either: a parent that is killed, see [`it_dies_with_its_parent`].
#[test]
fn orphaning_parent() {
    if std::env::var_os("HSMUX_TEST_IS_PARENT").is_none() {
        return;
    }
    let standin = StandIn::new("", "");
    let token = standin.connect().unwrap();
    let operation = sign(&*token);
    standin.set("", "hang_in_sign = true");
    let _told = submit(&*token, operation);
    println!("child {}", worker_of(&standin).unwrap());
    loop {
        std::thread::park();
    }
}

#[test]
fn it_signs_and_lists_and_ends_when_it_is_let_go() {
    let standin = StandIn::new("", "");
    let token = standin.connect().unwrap();
    let pid = worker_of(&standin).unwrap();
    assert_eq!(token.info().label, "m1");
    let operation = sign(&*token);
    for _ in 0..20 {
        let signature = token.execute(&operation, soon()).unwrap();
        assert_eq!(signature.into_bytes().unwrap().len(), 64);
    }
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let core = limits
        .lines()
        .find(|l| l.starts_with("Max core file size"))
        .unwrap();
    assert!(core.split_whitespace().nth(4) == Some("0"), "{core}");
    drop(token);
    until("it has ended and is no zombie", || !exists(pid));
}

#[test]
fn killed_it_fails_what_it_ran_and_can_be_replaced() {
    let standin = StandIn::new("", "");
    let token = standin.connect().unwrap();
    let operation = sign(&*token);
    let (tell, lost) = mpsc::channel::<Error>();
    token.on_lost(Box::new(move |error| tell.send(error).unwrap()));
    standin.set("", "hang_in_sign = true");
    // Two run, one waits.
    let told = [(); 3].map(|()| submit(&*token, operation.clone()));
    let pid = worker_of(&standin).unwrap();
    kill(pid);
    for told in told {
        let error = told.recv_timeout(LONG).unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::Lost);
        let text = error.to_string();
        assert!(text.contains("the worker of m1 died by signal 9"), "{text}");
        assert!(text.contains("C_Sign"), "{text}");
    }
    assert_eq!(lost.recv_timeout(LONG).unwrap().kind(), Kind::Lost);
    until("it is reaped", || !exists(pid));

    standin.set("", "");
    let again = standin.connect().unwrap();
    again.execute(&operation, soon()).unwrap();
    assert_eq!(
        token.execute(&operation, soon()).unwrap_err().kind(),
        Kind::Lost
    );
}

#[test]
fn a_crash_says_where() {
    let standin = StandIn::new("", "");
    let token = standin.connect().unwrap();
    let operation = sign(&*token);
    standin.set("", "crash_after = 0");
    let error = token.execute(&operation, soon()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("signal 6 (SIGABRT) in C_Sign"), "{text}");
}

#[test]
fn a_crash_while_objects_are_read_says_so() {
    let standin = StandIn::new("", "");
    let token = standin.connect().unwrap();
    // Reading computes check values of secret keys, which is an operation of the token.
    standin.set("", "crash_after = 0");
    let text = token.objects().unwrap_err().to_string();
    assert!(text.contains("reading the objects"), "{text}");
    assert!(text.contains("signal 6 (SIGABRT)"), "{text}");
}

#[test]
fn a_crash_at_the_start_says_where() {
    let standin = StandIn::new("crash_in_initialize = true", "");
    let error = standin.connect().err().unwrap();
    assert_eq!((error.kind(), error.scope()), (Kind::Lost, Scope::Token));
    let text = error.to_string();
    assert!(text.contains("the worker of m1 died by signal 6"), "{text}");
    assert!(text.contains("C_Initialize"), "{text}");
    standin.set("", "");
    standin.connect().expect("a healthy start");
}

#[test]
fn a_hang_at_the_start_ends_in_time() {
    let standin = StandIn::new("hang_in_initialize = true", "");
    let begun = Instant::now();
    let slow = standin.connector().start_within(Duration::from_secs(3));
    let error = slow.connect().err().unwrap();
    assert!(begun.elapsed() < LONG);
    assert_eq!(error.kind(), Kind::Deadline);
    assert!(error.to_string().contains("C_Initialize"), "{error}");
    assert_eq!(worker_of(&standin), None);
}

#[test]
fn one_that_hangs_is_aborted() {
    let standin = StandIn::new("", "");
    let token = standin.connect().unwrap();
    let operation = sign(&*token);
    standin.set("", "hang_in_sign = true");
    let told = submit(&*token, operation);
    let pid = worker_of(&standin).unwrap();
    token.abort("C_Sign takes too long");
    let error = told.recv_timeout(LONG).unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Lost);
    assert!(
        error.to_string().contains("C_Sign takes too long"),
        "{error}"
    );
    until("it is reaped", || !exists(pid));
}

#[test]
fn it_dies_with_its_parent() {
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["orphaning_parent", "--nocapture"])
        .env("HSMUX_TEST_IS_PARENT", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let mut told = lines.map_while(Result::ok);
    // The harness writes before it, on the same line.
    let child = told.find_map(|line| line.split("child ").nth(1)?.trim().parse().ok());
    let child: u32 = child.expect("the worker's id");
    assert!(exists(child));
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("the worker, which hangs in C_Sign, has ended", || {
        // An orphan is reaped by whoever inherits it; in a container perhaps by nobody.
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn a_wrong_pin_is_shown_once() {
    let standin = StandIn::new("", "pin = \"another\"");
    let first = standin.connect().err().unwrap();
    assert_eq!(first.kind(), Kind::PinHeld);
    assert!(first.to_string().contains("CKR_PIN_INCORRECT"), "{first}");
    let second = standin.connect().err().unwrap();
    assert_eq!(second.kind(), Kind::PinHeld, "{second}");
    assert_eq!(standin.logins(), 1);
}

#[test]
fn a_program_that_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (program, said) in [
        ("/does/not/exist", "/does/not/exist"),
        ("/bin/true", "code 0"),
    ] {
        let options = options("/no/module".as_ref(), "m1", "1", folder.path());
        let connector = ProcessConnector::new(program, options);
        let error = connector.connect().err().unwrap();
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn a_module_that_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let connector = connector("/bin/true".as_ref(), "m1", "1", folder.path());
    let error = connector.connect().err().unwrap();
    assert_eq!(error.kind(), Kind::Environment);
    assert!(error.to_string().contains("/bin/true"), "{error}");
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
