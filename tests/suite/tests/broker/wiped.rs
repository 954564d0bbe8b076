//! Plaintexts that were enciphered and deciphered are nowhere in the memory of the broker, the daemon and its workers
//! afterwards.
//! The test is root, as whoever takes a dump of a running host is.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use hsmux_suite::{PATIENCE, Run, until};
use serde_json::json;

use crate::process;
use crate::rig::Broker;

/// A key's name, which is there as long as the key: the search finds what is there.
const NAME: &str = "app-name-that-stays-in-memory";

/// A plaintext repeats these bytes. Their number is a multiple of three: in base64 they repeat, too.
const SECRET: &[u8; 24] = b"only a test has this one";
const TIMES: usize = 400;

/// Whether the writable memory of a process has one of these texts.
fn has(folder: &Path, pid: u32, texts: &[&str]) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("its maps");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("its memory");
    let dump = folder.join("dump");
    let out = File::create(&dump).expect("a dump");
    let mut end = 0;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, rest) = line.split_once('-').expect("a range");
        let (to, _) = rest.split_once(' ').expect("a range");
        let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).expect("an address"));
        let mut part = vec![0; 1 << 20];
        for at in (from..to).step_by(part.len()) {
            let len = part.len().min((to - at) as usize);
            // Some of it is not there, such as the guard of a stack.
            if memory.read_exact_at(&mut part[..len], at).is_ok() {
                out.write_all_at(&part[..len], end).expect("a dump");
                end += len as u64;
            }
        }
    }
    let grep = Run::new("grep").args("--text --count --fixed-strings");
    let grep = texts
        .iter()
        .fold(grep, |grep, text| grep.arg("-e").arg(text));
    let found = grep.arg(&dump).finish().out;
    fs::remove_file(dump).expect("a dump");
    found.trim() != "0"
}

#[test]
fn no_plaintext_stays_in_memory() {
    let broker = Broker::start(2);
    broker.good(
        "POST",
        &format!("keys/{NAME}"),
        r#"{"type": "aes256-gcm96"}"#,
    );
    let text = base64(&SECRET.repeat(TIMES));
    for _ in 0..20 {
        let body = json!({"plaintext": text}).to_string();
        let sealed = broker.good("POST", &format!("encrypt/{NAME}"), &body);
        let body = json!({"ciphertext": sealed["ciphertext"]}).to_string();
        let opened = broker.good("POST", &format!("decrypt/{NAME}"), &body);
        assert_eq!(opened["plaintext"], text);
    }
    let folder = broker.rig.path("");
    let daemon = broker.rig.daemon.as_ref().expect("a daemon").id();
    let service = process::pid(&broker.rig);
    for pid in [daemon, service] {
        assert!(has(&folder, pid, &[NAME]), "the search works");
    }
    let secret = std::str::from_utf8(SECRET).expect("text");
    for pid in broker.rig.workers().into_iter().chain([daemon, service]) {
        let in_base64 = base64(SECRET);
        let texts = [secret, &in_base64];
        until(&format!("{pid} has forgotten it"), PATIENCE, || {
            (!has(&folder, pid, &texts)).then_some(())
        });
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
