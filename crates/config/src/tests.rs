mod files;
mod mistakes;

use super::*;
use crate::Policy;

const GOOD: &str = r#"[pool]
label = "web"
policy = "round-robin"
read_only = false
queue = 1024
deadline = "30s"

[daemon]
socket = "run/hsmux.sock"
mode = "0660"
allow_users = ["root", 33]
keys = ["pkcs11:object=web"]
login = "pin"
pin = { file = "pool.pin" }

[[token]]
module = "/usr/lib/softhsm/libsofthsm2.so"
uri = "pkcs11:token=hsm1"
pin = { file = "hsm1.pin" }
isolation = "process"
sessions = 4
workers = 2
weight = 1
timeout = "1500ms"
env = { SOFTHSM2_CONF = "/x" }

[[token]]
module = "vendor.so"
uri = "pkcs11:serial=42"
pin = { env = "PIN2" }
"#;

fn read(text: &str) -> Result<Config, Vec<Mistake>> {
    parse(Path::new("/etc/hsmux/hsmux.toml"), text)
}

#[test]
fn the_shape_of_the_contract_is_read() {
    let config = read(GOOD).unwrap();
    assert_eq!(config.pool.policy, Policy::RoundRobin);
    assert_eq!(config.pool.deadline, Duration::from_secs(30));
    assert_eq!(config.state, Path::new("/etc/hsmux/state"));
    assert_eq!(config.audit.file, Path::new("/etc/hsmux/state/audit.log"));
    assert!(config.audit.stops && !config.audit.keys);
    assert_eq!(config.audit.checkpoint, Duration::from_secs(60));
    let listener = &config.listeners[0];
    assert_eq!(listener.socket.path, Path::new("/etc/hsmux/run/hsmux.sock"));
    assert_eq!(listener.socket.mode, 0o660);
    let users = [User::Name("root".into()), User::Id(33)];
    assert_eq!(listener.socket.allow_users, users);
    assert_eq!(listener.keys.len(), 1);
    assert_eq!(
        listener.pin,
        Some(PinSource::File("/etc/hsmux/pool.pin".into()))
    );
    let admin = &config.admin.socket;
    assert_eq!(admin.path, Path::new("/etc/hsmux/run/hsmux-admin.sock"));
    assert_eq!(admin.mode, 0o600);
    assert_eq!(config.module.socket, listener.socket.path);

    let [first, second] = &config.tokens[..] else {
        panic!("{:?}", config.tokens);
    };
    assert_eq!((first.name.as_str(), first.workers), ("hsm1", 2));
    assert_eq!(first.timeout, Duration::from_millis(1500));
    assert_eq!(first.env, [("SOFTHSM2_CONF".to_owned(), "/x".to_owned())]);
    assert_eq!(second.module, Path::new("/etc/hsmux/vendor.so"));
    assert_eq!(second.pin, Some(PinSource::Env("PIN2".into())));
    assert_eq!((second.name.as_str(), second.sessions), ("42", None));
}

#[test]
fn every_mistake_is_found_at_once() {
    let text = GOOD
        .replace("queue = 1024", "queue = 0\nqeue = 1")
        .replace("\"30s\"", "\"soon\"")
        .replace("sessions = 4", "sessions = \"4\"")
        .replace("serial=42", "token=hsm1");
    let mistakes = read(&text).unwrap_err();
    let lines: Vec<_> = mistakes.iter().map(|mistake| mistake.line).collect();
    assert_eq!(lines, [5, 6, 7, 22, 28], "{mistakes:#?}");
    assert!(
        mistakes[0]
            .to_string()
            .starts_with("/etc/hsmux/hsmux.toml:5: ")
    );
}

#[test]
fn a_secret_of_tickets_that_are_not_given_is_a_mistake() {
    let with = |lines: &str| {
        let gateway = format!(
            "[gateway]\nlisten = [\"[::1]:443\"]\n{lines}\n\
             [[site]]\ncertificates = [\"a.pem\"]\nroot = \"www\"\n[daemon]"
        );
        read(&GOOD.replace("[daemon]", &gateway))
    };
    let tickets = |lines| with(lines).unwrap().gateway.unwrap().tickets;
    assert!(tickets("") && tickets("ticket_secret = \"a\""));
    assert!(!tickets("tickets = false"));
    let mistakes = with("tickets = false\nticket_secret = \"a\"").unwrap_err();
    assert_eq!((mistakes.len(), mistakes[0].line), (1, 11), "{mistakes:#?}");
}

#[test]
fn times_have_the_range_of_their_key() {
    let with = |key: &str, time: &str| {
        let gateway = format!(
            "[gateway]\nlisten = [\"[::1]:443\"]\n{key} = \"{time}\"\n\
             [[site]]\ncertificates = [\"a.pem\"]\nroot = \"www\"\n[daemon]"
        );
        read(&GOOD.replace("[daemon]", &gateway))
    };
    for (key, good, bad) in [
        ("leave_time", ["0s", "24h"], ["-1s", "25h"]),
        ("drain_timeout", ["0s", "24h"], ["s", "86401s"]),
        ("tunnel_timeout", ["1ms", "168h"], ["0s", "169h"]),
        ("ticket_rotation", ["1m", "168h"], ["59s", "10081m"]),
        (
            "idle_timeout",
            ["1ms", "24h"],
            ["0ms", "99999999999999999h"],
        ),
    ] {
        for time in good {
            with(key, time).unwrap_or_else(|mistakes| panic!("{key} {time}: {mistakes:#?}"));
        }
        for time in bad {
            let mistakes = with(key, time).unwrap_err();
            assert_eq!(mistakes[0].line, 10, "{key} {time}: {mistakes:#?}");
        }
    }
    let leaves = |key| with(key, "0s").unwrap().gateway.unwrap().leave_time;
    assert_eq!(leaves("leave_time"), Duration::ZERO);
    assert_eq!(leaves("drain_timeout"), Duration::from_secs(3));
}

#[test]
fn without_members_there_is_no_pool() {
    let mistakes = read("[pool]\nlabel = \"x\"\n").unwrap_err();
    assert!(mistakes[0].message.contains("no [[token]]"), "{mistakes:?}");
    let mistakes = read("").unwrap_err();
    assert!(
        mistakes
            .iter()
            .any(|m| m.message.contains("[pool] needs label"))
    );
}

#[test]
fn the_example_is_good_and_so_is_every_key_of_it() {
    read(example()).unwrap();
    read(&full_example()).unwrap();
    let lines = [example(), &full_example()].concat();
    let wide = lines.lines().find(|line| line.chars().count() > 100);
    assert_eq!(wide, None);
    // Commented keys of the full example are valid as well, except those that contradict the shown ones.
    let all: String = full_example()
        .lines()
        .map(|line| line.strip_prefix('#').unwrap_or(line))
        .filter(|line| !line.starts_with(' '))
        .map(|line| format!("{line}\n"))
        .filter(|line| !line.starts_with("login = \"peer\""))
        .filter(|line| !line.starts_with("replicas") && !line.starts_with("dev "))
        .filter(|line| !line.starts_with("root") && !line.starts_with("send_proxy"))
        .filter(|line| !line.starts_with("backend_ca") && !line.starts_with("tickets = "))
        .filter(|line| !line.starts_with("node = "))
        .collect();
    read(&all).unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{all}"));
    for section in schema::SECTIONS {
        for key in section.keys {
            assert!(markdown().contains(&format!("| `{}` |", key.name)));
        }
    }
}

#[test]
fn the_file_system_is_looked_at_by_check_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hsmux.toml");
    std::fs::write(&file, GOOD).unwrap();
    let write = |name: &str, mode| {
        let path = folder.path().join(name);
        std::fs::write(&path, "1234\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    };
    write("pool.pin", 0o600);
    write("hsm1.pin", 0o644);
    load(&file).unwrap();
    let found = check(&file);
    let severity = |found: &[Mistake], line, part: &str| {
        let hit = found
            .iter()
            .find(|m| m.line == line && m.message.contains(part));
        hit.unwrap_or_else(|| panic!("{line} {part}: {found:#?}"))
            .severity
    };
    assert_eq!(
        severity(&found, 28, "vendor.so: No such file"),
        Severity::Error
    );
    assert_eq!(
        severity(&found, 19, "every user can read it; run: chmod 600"),
        Severity::Error
    );
    write("hsm1.pin", 0o600);
    let found = check(&file);
    assert_eq!(severity(&found, 30, "$PIN2"), Severity::Warning);
    // The files have the same PIN.
    let shared = severity(&found, 0, "applications log in with the PIN of hsm1");
    assert_eq!(shared, Severity::Warning);

    let bad = GOOD.replace("queue = 1024", "quue = 1024");
    std::fs::write(&file, bad).unwrap();
    let lines: Vec<_> = check(&file).iter().map(|mistake| mistake.line).collect();
    assert_eq!(lines, [5, 28, 30]);
    assert_eq!(
        PinSource::File(folder.path().join("hsm1.pin"))
            .read()
            .unwrap()
            .expose(),
        b"1234"
    );
}
