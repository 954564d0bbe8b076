//! The broker's process may end, stand still or be another user's: the daemon and its programs go on.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use hsmux_suite::{Caller, PATIENCE, Rig, Run, Setup, running, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::rig::{Broker, OTHERS};

/// The broker's process, as the daemon's status has it.
pub fn service(rig: &Rig) -> Value {
    let status = rig.status();
    let services = status["services"].as_array().expect("services");
    let mut services = services.iter();
    let broker = services.find(|service| service["name"] == "broker");
    broker.expect("a broker").clone()
}

/// The broker's process.
pub fn pid(rig: &Rig) -> u32 {
    let pid = service(rig)["pid"].as_u64().expect("a process");
    u32::try_from(pid).expect("a process id")
}

pub fn signal(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    kill_process(process.expect("a process"), signal).expect("it is there");
}

/// A broker over one token with a key that programs have, too. Its end takes no longer than a request.
fn broker() -> Broker {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.config.pool = "deadline = \"5s\"".into();
    let broker = Broker::over(rig, OTHERS).known();
    broker.good("POST", "keys/app-key", "{}");
    broker
}

#[test]
fn one_that_is_killed_is_started_again_and_programs_do_not_notice() {
    let mut broker = broker();
    let ciphertext = broker.good("POST", "encrypt/app-key", r#"{"plaintext": "dGV4dA=="}"#);
    let mut program = Caller::open(&broker.rig);
    program.ok("start_load", json!({"threads": 2}));
    let before = service(&broker.rig);
    assert_eq!(before["state"], "serving");
    signal(pid(&broker.rig), Signal::KILL);
    let after = until("it is started again", PATIENCE, || {
        let now = service(&broker.rig);
        (now["state"] == "serving" && now["restarts"] == 1).then_some(now)
    });
    assert!(
        after["problem"]
            .as_str()
            .expect("a reason")
            .contains("signal: 9")
    );
    broker.find();
    let body = json!({"ciphertext": ciphertext["ciphertext"]}).to_string();
    let plain = broker.good("POST", "decrypt/app-key", &body);
    assert_eq!(plain["plaintext"], "dGV4dA==");
    let load = program.ok("stop_load", json!({}));
    assert_eq!(load["failed"], json!({}), "{load}");
    assert!(load["signed"].as_u64() > Some(0), "{load}");
}

/// Clients that request this key's name until they are told to stop; answers the errors.
fn clients(broker: &Broker) -> (Arc<AtomicBool>, Vec<JoinHandle<Vec<String>>>) {
    let stop = Arc::new(AtomicBool::new(false));
    let client = |_| {
        let (stop, url, token) = (Arc::clone(&stop), broker.url.clone(), broker.token.clone());
        thread::spawn(move || {
            let mut failed = Vec::new();
            while !stop.load(Relaxed) {
                let mut connection = Connection::tcp(&url);
                match connection.ask("GET", "/v1/transit/keys/app-key", &token, "") {
                    Ok(answer) if answer.status == 200 => {}
                    Ok(answer) => failed.push(answer.status.to_string()),
                    Err(error) => failed.push(error.to_string()),
                }
            }
            failed
        })
    };
    let clients = (0..2).map(client).collect();
    (stop, clients)
}

#[test]
fn one_that_is_restarted_or_killed_refuses_no_connection() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.config.pool = "deadline = \"5s\"".into();
    let sections = r#"
[broker]
listen = ["127.0.0.1:0"]
socket = "broker.sock"

[[policy]]
clients = ["token:app"]
keys = ["app-*"]
allow = ["*"]
"#;
    let broker = Broker::of(rig, sections).known();
    let socket = broker.rig.path("broker.sock");
    broker.good("POST", "keys/app-key", "{}");
    for _ in 0..2 {
        let (stop, clients) = clients(&broker);
        let old = pid(&broker.rig);
        broker.rig.hsmux("restart broker").ok();
        assert!(!running(old));
        // At the same address, which the system has chosen at the first start.
        broker.good("GET", "keys/app-key", "");
        UnixStream::connect(&socket).expect("a listener");
        stop.store(true, Relaxed);
        for client in clients {
            assert_eq!(client.join().expect("a client"), [""; 0]);
        }
    }
    assert_eq!(service(&broker.rig)["restarts"], 0);
    signal(pid(&broker.rig), Signal::KILL);
    UnixStream::connect(&socket).expect("a listener");
    broker.good("GET", "keys/app-key", "");
}

#[test]
fn one_that_stands_still_holds_nobody_up() {
    let mut broker = broker();
    let stopped = pid(&broker.rig);
    signal(stopped, Signal::STOP);
    Caller::open(&broker.rig).ok("sign", json!({}));
    broker.rig.reload();
    assert_eq!(service(&broker.rig)["state"], "serving");
    // It is killed in the end.
    broker.rig.stop();
    assert!(!running(stopped));
}

#[test]
fn one_without_its_daemon_ends() {
    let mut broker = broker();
    let left = pid(&broker.rig);
    broker.rig.kill();
    until("it has ended", PATIENCE, || (!running(left)).then_some(()));
}

/// Nobody's number: a user without files.
const NOBODY: u32 = 65534;

#[test]
fn one_of_another_user_reads_no_pin_and_no_token() {
    let rig = Rig::prepare(Setup::Daemon, 1);
    // The folder lets others pass, and `broker` is theirs.
    let passes = Permissions::from_mode(0o711);
    fs::set_permissions(rig.path(""), passes).expect("permissions");
    let folder = rig.path("broker");
    fs::create_dir(&folder).expect("a folder");
    chown(&folder, Some(NOBODY), Some(NOBODY)).expect("an owner");
    let sections = format!(
        r#"
[broker]
listen = ["127.0.0.1:0"]
user = {NOBODY}
store = "{}"

[[policy]]
clients = ["token:app"]
keys = ["app-*"]
allow = ["*"]
"#,
        folder.join("broker.sqlite").display()
    );
    let broker = Broker::of(rig, &sections).known();
    broker.good("POST", "keys/app-key", "{}");
    broker.good("POST", "encrypt/app-key", r#"{"plaintext": "dGV4dA=="}"#);
    let status = fs::read_to_string(format!("/proc/{}/status", pid(&broker.rig)));
    let status = status.expect("a process");
    let line = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        let words = line.expect("a line").split_whitespace().skip(1);
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("Uid:"), vec![NOBODY.to_string(); 4]);
    assert!(line("Groups:").is_empty());
    assert_eq!(line("CapEff:"), ["0000000000000000"]);
    let inside = |folder: &Path| {
        let mut entries = fs::read_dir(folder).expect("a folder");
        entries.next().expect("something").expect("an entry").path()
    };
    let object = inside(&inside(&broker.rig.path("tokens")));
    let secrets = ["hsm1.pin", "pool.pin", "state"].map(|path| broker.rig.path(path));
    for file in secrets.into_iter().chain([object]) {
        let head = format!("--reuid {NOBODY} --regid {NOBODY} --clear-groups head -c1");
        let read = Run::new("setpriv").args(&head).arg(file);
        read.fails().says("Permission denied");
    }
}
