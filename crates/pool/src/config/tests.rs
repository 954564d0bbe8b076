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
    assert_eq!((second.name.as_str(), second.sessions), ("42", 4));
}

#[test]
fn a_worker_inherits_no_pin_of_any_member() {
    let config = read(GOOD).unwrap();
    let mut worker = std::process::Command::new("worker");
    config.environment(&config.tokens[0]).apply(&mut worker);
    let told: Vec<_> = worker.get_envs().collect();
    assert!(told.contains(&("PIN2".as_ref(), None)), "{told:?}");
    assert!(
        told.contains(&("SOFTHSM2_CONF".as_ref(), Some("/x".as_ref()))),
        "{told:?}"
    );
}

/// A line of the good file, what stands in its place, and the line and words of the one mistake.
const MISTAKES: &[(&str, &str, usize, &str)] = &[
    (
        r#"label = "web""#,
        r#"lable = "web""#,
        2,
        "did you mean \"label\"",
    ),
    (
        r#"label = "web""#,
        "label = 7",
        2,
        "expected text in quotes, found integer",
    ),
    (r#"label = "web""#, r#"label = """#, 2, "empty"),
    ("[daemon]", "[deamon]", 8, "did you mean \"daemon\""),
    (
        "queue = 1024",
        "queue = \"1024\"",
        5,
        "expected a number, found string",
    ),
    ("queue = 1024", "queue = 0", 5, "from 1 to 1000000"),
    ("queue = 1024", "queue = -1", 5, "expected a number"),
    ("queue = 1024", "queue == 1024", 5, ""),
    ("queue = 1024", "quue = 1024", 5, "did you mean \"queue\""),
    (r#""30s""#, r#""30""#, 6, "ms, s, m or h"),
    (r#""30s""#, r#""0s""#, 6, "from 1ms to 24h"),
    (r#""30s""#, "30", 6, "expected text in quotes"),
    (
        "round-robin",
        "round-robbin",
        3,
        "did you mean \"round-robin\"",
    ),
    ("read_only = false", "read_only = 0", 4, "true or false"),
    (r#""0660""#, r#""0888""#, 10, "octal"),
    (r#""0660""#, "660", 10, "octal permissions in quotes"),
    ("33]", "1.5]", 11, "text in quotes"),
    (
        "pkcs11:object=web",
        "pkcs11:objekt=web",
        12,
        "did you mean \"object\"",
    ),
    (r#"login = "pin""#, r#"login = "peer""#, 14, "needs no PIN"),
    (
        "{ file = \"pool.pin\" }",
        "\"1234\"",
        14,
        "a PIN is named by its place",
    ),
    (
        "{ file = \"pool.pin\" }",
        "{ fil = \"pool.pin\" }",
        14,
        "\"fil\" is unknown",
    ),
    ("token=hsm1", "object=hsm1", 18, "names no token"),
    (
        "token=hsm1",
        "token=hsm1?pin-value=1234",
        18,
        "does not belong in a URI",
    ),
    (
        "token=hsm1",
        "token=hsm1?pin-source=x",
        18,
        "keys of their own",
    ),
    (r#"uri = "pkcs11:token=hsm1""#, "", 16, "needs uri = "),
    (
        r#"isolation = "process""#,
        r#"isolation = "thread""#,
        22,
        "needs isolation = \"process\"",
    ),
    ("serial=42", "token=hsm1", 27, "stands already in line 16"),
    (
        "[daemon]",
        "[module]\nmode = \"embedded\"\n[daemon]\nread_only = true",
        9,
        "exclude each other",
    ),
    (
        "[daemon]",
        "[module]\nsocket = \"other\"\n[daemon]",
        9,
        "no listener of this file",
    ),
    (
        "[daemon]",
        "[admin]\nsocket = \"run/hsmux.sock\"\n[daemon]",
        9,
        "a listener of its own",
    ),
    ("[daemon]", "[[listener]]\n[daemon]", 8, "needs socket = "),
    (
        "[daemon]",
        "[[listener]]\nsocket = \"run/hsmux.sock\"\n[daemon]",
        9,
        "stands already",
    ),
    (
        "[daemon]",
        "[traces]\nendpoint = \"http://127.0.0.1:4318\"\n[daemon]",
        8,
        "is for the broker: add [broker]",
    ),
    (
        "[daemon]",
        "[broker]\n[traces]\n[daemon]",
        9,
        "needs endpoint = ",
    ),
    (
        "[daemon]",
        "[broker]\n[traces]\nendpoint = \"collector:4318\"\n[daemon]",
        10,
        "neither with http: nor with https:",
    ),
    (
        "[daemon]",
        "[broker]\n[traces]\nendpoint = \"http://collector\"\nca = \"ca.pem\"\n[daemon]",
        11,
        "begins with https:",
    ),
    (
        "[daemon]",
        "[broker]\n[traces]\nendpoint = \"http://collector\"\nsample = 1.5\n[daemon]",
        11,
        "from 0 to 1",
    ),
    (
        "[daemon]",
        "[broker]\n[traces]\nendpoint = \"http://collector\"\nsamples = 1\n[daemon]",
        11,
        "did you mean \"sample\"",
    ),
    (
        "[daemon]",
        "[[site]]\ncertificates = [\"a.pem\"]\nroot = \"www\"\n[daemon]",
        8,
        "is for the gateway: add [gateway]",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n[daemon]",
        10,
        "needs one of backend",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         keys = []\nroot = \"www\"\n[daemon]",
        12,
        "one for each of certificates",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\nacme = \"www\"\n\
         [[site]]\ncertificates = [\"a.pem\"]\nroot = \"www\"\n[daemon]",
        10,
        "give the port, http = [\"0.0.0.0:80\"]",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\nhttp = [\"[::1]:80\"]\nacme = \"https://[::1]:8080\"\n\
         [[site]]\ncertificates = [\"a.pem\"]\nroot = \"www\"\n[daemon]",
        11,
        "neither http://HOST:PORT nor a folder",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\nhttp = [\"[::1]:443\"]\n\
         [[site]]\ncertificates = [\"a.pem\"]\nroot = \"www\"\n[daemon]",
        10,
        "is taken by listen or metrics",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = \"http://[::1]:80\"\nbackend_ca = \"ca.pem\"\n[daemon]",
        13,
        "is for an https:// backend",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = \"https://[::1]:80/path\"\n[daemon]",
        12,
        "is none of http://HOST:PORT, https://HOST[:PORT]",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = []\n[daemon]",
        12,
        "the list is empty",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = [\"http://[::1]:80\", \"http://[::1]:80/\"]\n[daemon]",
        12,
        "stands there twice",
    ),
    (
        "[daemon]",
        "[gateway]\nlisten = [\"[::1]:443\"]\n[[site]]\ncertificates = [\"a.pem\"]\n\
         backend = [\"http://[::1]:80\", \"tcp://[::1]:80\"]\n[daemon]",
        12,
        "cannot take turns",
    ),
    (
        "[[token]]\nmodule = \"vendor.so\"",
        "[token]\nmodule = \"vendor.so\"",
        27,
        "",
    ),
];

#[test]
fn each_mistake_has_its_line_and_says_what_to_write() {
    for (good, bad, line, words) in MISTAKES {
        assert!(GOOD.contains(good), "{good}");
        let mistakes = read(&GOOD.replacen(good, bad, 1)).unwrap_err();
        assert!(
            mistakes
                .iter()
                .any(|m| m.line == *line && m.message.contains(words)),
            "{bad}: {mistakes:#?}"
        );
    }
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
    read(&example()).unwrap();
    // The comments of the example are keys too: all but those that contradict the shown ones.
    let all: String = example()
        .lines()
        .map(|line| {
            line.strip_prefix("# ")
                .filter(|l| l.contains(" = ") || l.starts_with('['))
        })
        .zip(example().lines())
        .map(|(commented, line)| format!("{}\n", commented.unwrap_or(line)))
        .filter(|line| !line.starts_with("login = \"peer\"") && !line.starts_with("# hsmux"))
        .filter(|line| !line.starts_with("replicas") && !line.starts_with("dev "))
        .filter(|line| !line.starts_with("root") && !line.starts_with("send_proxy"))
        .filter(|line| !line.starts_with("backend_ca"))
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
    let text = |line, part: &str| {
        let hit = found
            .iter()
            .find(|m| m.line == line && m.message.contains(part));
        hit.unwrap_or_else(|| panic!("{line} {part}: {found:#?}"))
            .severity
    };
    assert_eq!(text(28, "vendor.so: No such file"), Severity::Error);
    assert_eq!(
        text(19, "hsm1.pin: every user can read it"),
        Severity::Warning
    );
    assert_eq!(text(30, "$PIN2"), Severity::Warning);
    // The files have the same PIN.
    let shared = text(0, "applications log in with the PIN of hsm1");
    assert_eq!(shared, Severity::Warning);

    // A mistake elsewhere hides nothing of this.
    let bad = GOOD.replace("queue = 1024", "quue = 1024");
    std::fs::write(&file, bad).unwrap();
    let lines: Vec<_> = check(&file).iter().map(|mistake| mistake.line).collect();
    assert_eq!(lines, [5, 19, 28, 30]);
    assert_eq!(
        PinSource::File(folder.path().join("hsm1.pin"))
            .read()
            .unwrap()
            .expose(),
        b"1234"
    );
}
