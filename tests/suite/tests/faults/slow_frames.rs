//! Frames that come byte by byte cost another user little.

use hsmux_suite::{Process, Rig};
use hsmux_wire::Call;

use crate::fairness::{HONEST, key, rate, shared_by_users, signatures};
use crate::memory::{MOST, most_memory};
use crate::swarm::User;

/// Of its rate without the others, another user keeps so much.
const KEPT: f64 = 0.5;

/// A busy machine takes CPUs now and then: the median of so many rates is judged.
const ROUNDS: usize = 5;

/// Microseconds that the token takes for everything: it bounds the rate, not the machine.
const SERVICE_TIME_US: u32 = 10_000;

/// Functions of the hostile programs. Their arguments are the socket, the PIN and numbers.
const PEER: &str = r"
import select, socket, struct, sys, time
path, pin = sys.argv[1], sys.argv[2].encode()
def frame(item): return struct.pack('<I', len(item)) + item
def read(s):
    want = struct.unpack('<I', s.recv(4, socket.MSG_WAITALL))[0]
    return s.recv(want, socket.MSG_WAITALL)
def connect():
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    s.sendall(frame(b'\x84\x01\x02\x50' + bytes(16) + b'\x64test'))
    read(s)
    return s
def begin(kind, length):
    return struct.pack('<I', length) + bytes([0x82, kind, 0x81, 0x5a]) + struct.pack('>I', length - 16)
def send(s, count):
    s.setblocking(False)
    try:
        return s.send(bytes(count))
    except BlockingIOError:
        return 0
def sends(s):
    try:
        send(s, 1)
        return True
    except OSError:
        return False
def trickle(everyone, again):
    print('byte by byte', flush=True)
    while True:
        everyone = [s if sends(s) else again() for s in everyone]
        time.sleep(0.002)
";

/// Sixty connections, each with a login of 3,000 bytes, of which a byte comes every few milliseconds.
const LOGINS: &str = r"
def login():
    s = connect()
    s.sendall(begin(4, 3000))
    return s
trickle([login() for _ in range(60)], login)
";

/// Twelve connections that log in and begin a frame of this length. As many frames as the user's budget allows come
/// quickly up to this number of bytes, and then byte by byte. The daemon does not read the others.
const CALLS: &str = r"
length, quick, granted = map(int, sys.argv[3:])
def call():
    s = connect()
    s.sendall(frame(b'\x82\x04\x81' + bytes([0x40 | len(pin)]) + pin))
    answer = read(s)
    assert len(answer) < 16, answer
    s.sendall(begin(0, length))
    return s
everyone = [call() for _ in range(12)]
left = {s: quick for s in everyone}
while list(left.values()).count(0) < granted:
    for s in select.select([], [s for s in everyone if left[s]], [], 60)[1]:
        left[s] -= send(s, min(left[s], 1 << 16))
trickle(everyone, call)
";

/// The median of some rates.
fn median(user: &mut User, call: &Call) -> f64 {
    let mut rates = [(); ROUNDS].map(|()| rate(user, call));
    rates.sort_by(f64::total_cmp);
    rates[ROUNDS / 2]
}

/// Asserts that a user keeps its rate beside this program of the user `nobody`, which has a log of this name.
fn keeps_its_rate(rig: &Rig, name: &str, program: &str, numbers: &str) {
    let call = signatures(key(rig, "ec"), 1, 32);
    let mut honest = User::log_in(rig, HONEST);
    let alone = median(&mut honest, &call);
    let run = rig
        .run("setpriv")
        .args("--reuid nobody --regid nogroup --clear-groups /usr/bin/python3 -c")
        .arg(format!("{PEER}{program}"))
        .arg(rig.path("hsmux.sock"))
        .arg(rig.pin())
        .args(numbers);
    let mut hostile = Process::start(name, &rig.path(""), run);
    hostile.wait_for("byte by byte");
    let beside = median(&mut honest, &call);
    let kept = beside / alone;
    println!("{name}: {alone:.0}/s alone, {beside:.0}/s beside slow frames: {kept:.2}");
    assert!(hostile.running(), "{}", hostile.log());
    assert!(kept >= KEPT, "{name}: {kept:.2} of the rate is left");
}

#[test]
fn frames_that_come_byte_by_byte_leave_another_user_its_rate() {
    let rig = shared_by_users(&["a"], SERVICE_TIME_US);
    keeps_its_rate(&rig, "logins", LOGINS, "");
}

/// Each frame counts twice in a budget of 64 MiB (`USER` in `crates/wire/src/budget.rs`): for itself and its answer.
#[test]
fn long_frames_that_come_byte_by_byte_leave_another_user_its_rate() {
    let rig = shared_by_users(&["a"], SERVICE_TIME_US);
    for (name, length, granted) in [
        ("frames-of-8-mib", (8 << 20) - (64 << 10), 4),
        ("frames-of-16-mib", 16 << 20, 1),
    ] {
        let quick = length - (1 << 20);
        keeps_its_rate(&rig, name, CALLS, &format!("{length} {quick} {granted}"));
    }
    let most = most_memory(rig.daemon.as_ref().expect("a daemon").id());
    println!("at most {most} KiB");
    assert!(most < MOST, "{most} KiB");
}
