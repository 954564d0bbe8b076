//! Frames that come byte by byte cost another user little.

use hsmux_suite::Process;

use crate::fairness::{HONEST, key, rate, shared_by_users, signatures};
use crate::swarm::User;

/// Of its rate without the others, another user keeps so much.
const KEPT: f64 = 0.5;

/// A busy machine takes CPUs now and then: the median of so many rates is judged.
const ROUNDS: usize = 5;

/// Microseconds that the token takes for everything: it bounds the rate, not the machine.
const SERVICE_TIME_US: u32 = 10_000;

/// Sixty connections of the user `nobody`, each with a login of 3,000 bytes, of which a byte comes every few milliseconds.
const HOSTILE: &str = r"
import socket, struct, sys, time
path, LOGIN = sys.argv[1], 3000
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
def login():
    s = connect()
    s.sendall(begin(4, LOGIN))
    return s
def sends(s):
    s.setblocking(False)
    try:
        s.send(b'\0')
        return True
    except BlockingIOError:
        return True
    except OSError:
        return False
everyone = [login() for _ in range(60)]
print('byte by byte', flush=True)
while True:
    everyone = [s if sends(s) else login() for s in everyone]
    time.sleep(0.002)
";

#[test]
fn frames_that_come_byte_by_byte_leave_another_user_its_rate() {
    let rig = shared_by_users(&["a"], SERVICE_TIME_US);
    let call = signatures(key(&rig, "ec"), 1, 32);
    let mut honest = User::log_in(&rig, HONEST);
    let mut median = || {
        let mut rates = [(); ROUNDS].map(|()| rate(&mut honest, &call));
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2]
    };
    let alone = median();
    let run = rig
        .run("setpriv")
        .args("--reuid nobody --regid nogroup --clear-groups /usr/bin/python3 -c")
        .arg(HOSTILE)
        .arg(rig.path("hsmux.sock"));
    let mut hostile = Process::start("hostile", &rig.path(""), run);
    hostile.wait_for("byte by byte");
    let beside = median();
    let kept = beside / alone;
    println!("{alone:.0}/s alone, {beside:.0}/s beside slow frames: {kept:.2}");
    assert!(hostile.running(), "{}", hostile.log());
    assert!(kept >= KEPT, "{kept:.2} of the rate is left");
}
