//! Files that the configuration names: a missing one is reported with its line, unless it may come later.

use crate::{Mistake, NewErrors, check, load, new_errors, untrusted_files};
use hsmux_token::fake::write_secret;

const TEXT: &str = r#"[pool]
label = "web"
[broker]
listen = ["127.0.0.1:0"]
certificate = "broker.pem"
key = "broker.key"
client_ca = "clients.pem"
jwt_keys = "jwks.json"
jwt_issuer = "https://login.example"
jwt_audience = "hsmux"
[traces]
endpoint = "https://collector.example"
ca = "collector.pem"
[gateway]
listen = ["127.0.0.1:0"]
http = ["127.0.0.1:1"]
[[site]]
certificates = ["web.pem"]
keys = ["web.key"]
ocsp = ["web.ocsp"]
root = "www"
[[token]]
module = "vendor.so"
uri = "pkcs11:token=a"
"#;

/// Each file that it names, and the line.
const NAMED: [(&str, usize); 9] = [
    ("broker.pem", 5),
    ("broker.key", 6),
    ("clients.pem", 7),
    ("jwks.json", 8),
    ("collector.pem", 13),
    ("web.pem", 18),
    ("web.key", 19),
    ("web.ocsp", 20),
    ("vendor.so", 23),
];

const NONE: [usize; 0] = [];

/// The lines with an error if only these files and the folder `www` exist.
fn wrong(text: &str, there: &[&str]) -> Vec<usize> {
    let folder = tempfile::tempdir().unwrap();
    for name in there {
        write_secret(&folder.path().join(name), "");
    }
    std::fs::create_dir(folder.path().join("www")).unwrap();
    let file = folder.path().join("hsmux.toml");
    std::fs::write(&file, text).unwrap();
    let mistakes = check(&file);
    let errors = mistakes.iter().filter(|mistake| mistake.is_error());
    errors.map(|mistake| mistake.line).collect()
}

fn names() -> Vec<&'static str> {
    NAMED.iter().map(|(name, _)| *name).collect()
}

/// All but this one.
fn without(missing: &str) -> Vec<&'static str> {
    let mut names = names();
    names.retain(|name| *name != missing);
    names
}

#[test]
fn each_file_that_is_missing_has_its_line() {
    assert_eq!(wrong(TEXT, &names()), NONE);
    for (missing, line) in NAMED {
        assert_eq!(wrong(TEXT, &without(missing)), [line], "{missing}");
    }
    let fetched = r#"{ url = "https://login.example/jwks.json", ca = "issuer.pem" }"#;
    let text = TEXT.replace(r#""jwks.json""#, fetched);
    assert_eq!(wrong(&text, &names()), NONE, "it may come later");
}

#[test]
fn the_socket_of_a_unit_has_the_name_of_the_administration_and_is_not_too_long() {
    let unit = |socket: &str| {
        let text = TEXT.replace("[gateway]", "[gateway]\nstarted_by = \"systemd\"");
        format!("{text}[admin]\nsocket = {socket:?}\n")
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |length: usize| {
        let folder = folder.path().display().to_string();
        let name = "a".repeat(length - folder.len() - "/.sock".len());
        format!("{folder}/{name}.sock")
    };
    assert_eq!(wrong(&unit(&path(99)), &names()), NONE);
    assert_eq!(wrong(&unit(&path(100)), &names()), [14]);
}

/// Only new errors prevent a reload.
#[test]
fn an_error_is_new_if_the_running_configuration_does_not_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hsmux.toml");
    for name in without("broker.key") {
        write_secret(&folder.path().join(name), "");
    }
    let read = |text: &str| {
        std::fs::write(&file, text).unwrap();
        load(&file).unwrap()
    };
    let running = read(TEXT);
    let of = |mistakes: &[Mistake]| mistakes.iter().map(|mistake| mistake.line).collect();
    let lines = |text: &str| -> Vec<usize> { of(&new_errors(&read(text), &running).all) };
    let of_sites = |text: &str| -> Vec<usize> { of(&new_errors(&read(text), &running).of_sites) };
    assert_eq!(lines(TEXT), NONE);
    // Its line has changed.
    assert_eq!(lines(&format!("# moved\n{TEXT}")), NONE);
    for (name, line) in NAMED {
        let missing = TEXT.replace(name, &format!("other-{name}"));
        // An error of a site blocks only this site.
        let found = if name.starts_with("web.") {
            (NONE.to_vec(), vec![line])
        } else {
            (vec![line], NONE.to_vec())
        };
        assert_eq!((lines(&missing), of_sites(&missing)), found, "{name}");
    }
    // It is named again, though the running configuration has it.
    let missing = TEXT.replace("web.pem", "other.pem");
    let again = new_errors(&read(&missing), &read(&missing));
    assert_eq!((again.all.len(), again.of_sites.len()), (0, 1));
    let added = TEXT.replace("vendor.so", "added.so");
    assert_eq!(lines(&added), [23]);
    // As `token add` does, which takes over no other part of the file.
    let mut running = running.clone();
    running.tokens.extend(read(&added).tokens);
    assert_eq!(new_errors(&read(&added), &running).all, []);
}

#[test]
fn what_is_served_is_a_folder() {
    for (root, expected) in [("not-yet", &NONE[..]), ("web.pem", &[21])] {
        let text = TEXT.replace(r#""www""#, &format!("{root:?}"));
        assert_eq!(wrong(&text, &names()), expected, "{root}");
    }
}

/// An ACME client brings the certificate, its key and its OCSP response.
#[test]
fn what_an_acme_client_brings_may_be_missing_with_its_certificate() {
    let text = TEXT.replace("ocsp =", "acme = \"http://127.0.0.1:8080\"\nocsp =");
    let mut there = without("web.pem");
    there.retain(|name| !name.starts_with("web."));
    assert_eq!(wrong(&text, &there), NONE);
    there.push("web.pem");
    assert_eq!(wrong(&text, &there), [19, 21]);
}

#[test]
fn what_others_can_read_or_change_is_an_error_with_the_command_that_repairs_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let set = |name: &str, mode| {
        std::fs::set_permissions(path(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    for name in names() {
        write_secret(&path(name), "");
    }
    std::fs::create_dir(path("www")).unwrap();
    std::fs::write(path("hsmux.toml"), TEXT).unwrap();
    let errors = || {
        let mut found = check(&path("hsmux.toml"));
        found.retain(Mistake::is_error);
        found
    };
    assert_eq!(errors(), []);
    for (name, mode, command, line) in [
        ("broker.key", 0o644, "chmod 640", 6),
        ("clients.pem", 0o660, "chmod go-w", 7),
        ("jwks.json", 0o646, "chmod go-w", 8),
        ("web.key", 0o660, "chmod 640", 19),
        ("vendor.so", 0o775, "chmod go-w", 23),
        ("hsmux.toml", 0o646, "chmod go-w", 0),
    ] {
        set(name, mode);
        let found = errors();
        set(name, 0o640);
        assert_eq!(found.len(), 1, "{found:?}");
        let expected = format!("run: {command} {}", path(name).display());
        assert!(found[0].message.ends_with(&expected), "{}", found[0]);
        assert_eq!(found[0].line, line, "{}", found[0]);
        assert_eq!(errors(), [], "its group may read it: {name}");
    }
    set("hsmux.toml", 0o664);
    assert!(load(&path("hsmux.toml")).is_err());
}

#[test]
fn files_that_say_whom_to_trust_can_be_changed_by_nobody_else() {
    use std::os::unix::fs::PermissionsExt;
    const TRUST: &str = r#"[pool]
label = "web"
[gateway]
listen = ["127.0.0.1:0"]
[[site]]
certificates = ["web.pem"]
keys = ["web.key"]
client_ca = "clients.pem"
client_crl = ["revoked.pem"]
backend = "https://127.0.0.1:1"
backend_ca = "backends.pem"
[node]
listen = ["127.0.0.1:0"]
certificate = "node.pem"
key = "node.key"
ca = "hosts.pem"
[[token]]
module = "vendor.so"
uri = "pkcs11:token=a"
"#;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let trusted = [
        ("clients.pem", 8),
        ("revoked.pem", 9),
        ("backends.pem", 11),
        ("hosts.pem", 16),
    ];
    let others = ["web.pem", "web.key", "node.pem", "node.key", "vendor.so"];
    for name in trusted.iter().map(|(name, _)| *name).chain(others) {
        write_secret(&path(name), "");
    }
    std::fs::write(path("hsmux.toml"), TRUST).unwrap();
    let errors = || {
        let mut found = check(&path("hsmux.toml"));
        found.retain(Mistake::is_error);
        found
    };
    assert_eq!(errors(), []);
    for (name, line) in trusted {
        for mode in [0o602, 0o620] {
            let set = |mode| std::fs::set_permissions(path(name), PermissionsExt::from_mode(mode));
            set(mode).unwrap();
            let found = errors();
            let config = load(&path("hsmux.toml")).unwrap();
            assert_eq!(untrusted_files(&config), found);
            let NewErrors { mut all, of_sites } = new_errors(&config, &config);
            all.extend(of_sites);
            assert_eq!(all, found, "a reload of the same file");
            set(0o644).unwrap();
            assert_eq!(found.len(), 1, "{found:?}");
            let expected = format!("run: chmod go-w {}", path(name).display());
            assert!(found[0].message.ends_with(&expected), "{}", found[0]);
            assert_eq!(found[0].line, line, "{}", found[0]);
        }
    }
    assert_eq!(errors(), []);
    // Whoever can make the file decides what is in it.
    let config = load(&path("hsmux.toml")).unwrap();
    std::fs::remove_file(path("hosts.pem")).unwrap();
    assert_eq!(untrusted_files(&config), []);
    let open = |mode| std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode));
    open(0o1777).unwrap();
    let found = untrusted_files(&config);
    open(0o700).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].message.contains("other users can make"),
        "{}",
        found[0]
    );
}
