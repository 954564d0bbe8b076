//! A user who asks for much and reads nothing costs the daemon little memory, and another user nothing.

use std::fs;

use hsmux_suite::Process;

use crate::fairness::{HONEST, key, rate, shared_by_users, signatures};
use crate::swarm::User;

/// The most that the daemon may have held at any moment, in KiB.
pub const MOST: u64 = 200 << 10;

/// Of its rate without the others, another user keeps so much.
const KEPT: f64 = 0.9;

/// A busy machine takes CPUs now and then: the median of so many rates is judged.
const ROUNDS: usize = 5;

/// Microseconds that the token takes for everything: it bounds the rate, not the machine.
const SERVICE_TIME_US: u32 = 10_000;

/// Connections of the user `nobody`, in three groups: one asks for random bytes before C_Login, one after it, and
/// one sends the begin of the longest frames. None reads more than it has to.
const HOSTILE: &str = r"
import select, signal, socket, struct, sys
path, pin = sys.argv[1], sys.argv[2].encode()
def head(major, n):
    if n < 24: return bytes([major << 5 | n])
    if n < 256: return bytes([major << 5 | 24, n])
    if n < 65536: return bytes([major << 5 | 25]) + struct.pack('>H', n)
    return bytes([major << 5 | 26]) + struct.pack('>I', n)
def frame(item): return struct.pack('<I', len(item)) + item
def read(s):
    want = struct.unpack('<I', s.recv(4, socket.MSG_WAITALL))[0]
    return s.recv(want, socket.MSG_WAITALL)
def random(count, len):
    item = b'\x82\x82\x01\x81' + head(0, len) + head(0, 60_000_000)
    return frame(b'\x82\x00\x81' + head(4, count) + item * count)
def connect(i):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    s.sendall(frame(b'\x84\x01\x02\x50' + bytes(12) + struct.pack('>I', i) + b'\x64test'))
    read(s)
    return s
def log_in(s):
    s.sendall(frame(b'\x82\x04\x81' + head(2, len(pin)) + pin))
    answer = read(s)
    assert len(answer) < 8, answer
everyone = [connect(i) for i in range(100)]
# Without limits each of these took gigabytes: too many operations, and more than a connection may have before C_Login.
for count, why in (1024, b'operations in one call'), (15, b'before C_Login'):
    for s in everyone:
        s.sendall(random(count, 1 << 20))
    for s in everyone:
        assert why in read(s)
print('refused before C_Login', flush=True)
for s in everyone[:60]:
    log_in(s)
for s in everyone[:60]:
    s.sendall(random(15, 1 << 20))
for s in everyone[60:]:
    log_in(s)
    s.setblocking(False)
    try:
        s.sendall(struct.pack('<I', 16 << 20) + bytes(16 << 20))
    except BlockingIOError:
        pass
select.select(everyone[:60], [], [], 60)
print('asked for a gigabyte', flush=True)
signal.pause()
";

#[test]
fn a_hundred_hostile_connections_cost_little_memory_and_another_user_nothing() {
    let rig = shared_by_users(&["a"], SERVICE_TIME_US);
    let call = signatures(key(&rig, "ec"), 1, 32);
    let mut honest = User::log_in(&rig, HONEST);
    let mut median = || {
        let mut rates = [(); ROUNDS].map(|()| rate(&mut honest, &call));
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2]
    };
    let before = median();
    let run = rig
        .run("setpriv")
        .args("--reuid nobody --regid nogroup --clear-groups /usr/bin/python3 -c")
        .arg(HOSTILE)
        .arg(rig.path("hsmux.sock"))
        .arg(rig.pin());
    let mut hostile = Process::start("hostile", &rig.path(""), run);
    hostile.wait_for("refused before C_Login");
    hostile.wait_for("asked for a gigabyte");
    let beside = median();
    let most = most_memory(rig.daemon.as_ref().expect("a daemon").id());
    hostile.kill();
    // Other tests may have begun meanwhile.
    let alone = before.min(median());
    let kept = beside / alone;
    println!("{alone:.0}/s alone, {beside:.0}/s beside them: {kept:.2}; at most {most} KiB");
    assert!(most < MOST, "{most} KiB");
    assert!(kept >= KEPT, "{kept:.2} of the rate is left");
}

/// The most that a process has had resident, in KiB (VmHWM, proc(5)).
pub fn most_memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number
        .and_then(|number| number.parse().ok())
        .expect("a number")
}
