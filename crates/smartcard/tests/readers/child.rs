use std::env;
use std::io::{BufRead, BufReader, Write, stdin};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Command, Stdio};

use hsmux_vcard::reader::Readers;
use hsmux_vcard::{Card, Order, Profile};

const CHILD: &str = "HSMUX_READERS_CHILD";
/// The beginning of a line for the parent, among the test's output.
const MARK: &str = "@tell ";
/// The test came to its end.
const DONE: &str = "done";

/// Runs `work`, which is all that the test of this name does, in a process that sees so many virtual cards in
/// readers.
pub fn child(test: &str, cards: usize, work: impl FnOnce()) {
    if env::var_os(CHILD).is_some() {
        work();
        tell(DONE);
        return;
    }
    let card = |number| Card::new(Profile::new(&format!("RD{number:06}"))).unwrap();
    let readers = Readers::start((0..cards).map(card).collect()).unwrap();
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .envs(readers.environment())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut done = child.stdin.take().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let obeyed = catch_unwind(AssertUnwindSafe(|| {
        let mut finished = false;
        for line in lines.map_while(Result::ok) {
            if let Some((_, what)) = line.split_once(MARK) {
                finished |= what == DONE;
                obey(&readers, what);
                writeln!(done).unwrap();
            }
        }
        finished
    }));
    let ended = child.wait().unwrap();
    let finished = obeyed.unwrap_or_else(|panic| resume_unwind(panic));
    assert!(ended.success() && finished, "{test}: {ended}");
}

/// Has the parent do something to the first card, or to pcscd, and waits until it is done.
pub fn tell(what: &str) {
    println!("{MARK}{what}");
    stdin().lines().next().unwrap().unwrap();
}

fn obey(readers: &Readers, what: &str) {
    match what {
        "pull" => assert!(readers.obey(0, Order::Unplug)),
        "plug" => assert!(readers.obey(0, Order::Plug)),
        "stop" => readers.stop_pcscd(),
        DONE => {}
        "start" => readers.start_pcscd().unwrap(),
        other => panic!("{other}?"),
    }
}
