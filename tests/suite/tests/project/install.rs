//! `make install` puts everything where a system looks for it, and `make uninstall` takes it away.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hsmux_suite::{Program, Run, built, source};
use tempfile::TempDir;

const FILES: &[&str] = &[
    "usr/bin/hsmux",
    "usr/lib/libhsmux_pkcs11.so",
    "usr/share/man/man1/hsmux.1",
    "usr/share/bash-completion/completions/hsmux",
    "usr/share/zsh/site-functions/_hsmux",
    "usr/share/fish/vendor_completions.d/hsmux.fish",
    "usr/share/p11-kit/modules/hsmux.module",
    "usr/lib/systemd/system/hsmux.service",
    "usr/lib/systemd/system/hsmux-gateway.service",
    "usr/lib/systemd/system/hsmux-broker.service",
    "usr/lib/systemd/system/hsmux-node.service",
    "usr/lib/sysusers.d/hsmux.conf",
];

const LAB: &[&str] = &[
    "usr/bin/hsmux-lab",
    "usr/share/man/man1/hsmux-lab.1",
    "usr/share/man/man1/hsmux-lab-bench-sign.1",
    "usr/share/bash-completion/completions/hsmux-lab",
    "usr/share/zsh/site-functions/_hsmux-lab",
    "usr/share/fish/vendor_completions.d/hsmux-lab.fish",
];

fn install(root: &Path, lab: &str, more: &str) {
    Run::new(source().join("scripts/install.sh"))
        .env("DESTDIR", root)
        .env("PREFIX", "/usr")
        .env("LIBDIR", "/usr/lib")
        .env("UNITDIR", "/usr/lib/systemd/system")
        .env("SYSUSERSDIR", "/usr/lib/sysusers.d")
        .env("LAB", lab)
        .env("BUILT", built(Program::Hsmux).parent().unwrap())
        .args(more)
        .ok();
}

#[test]
fn installs_and_removes() {
    let root = TempDir::new().unwrap();
    install(root.path(), "yes", "");
    for file in FILES.iter().chain(LAB) {
        assert!(
            root.path()
                .join(file)
                .metadata()
                .is_ok_and(|data| data.len() > 0),
            "{file}"
        );
    }
    let libraries = fs::read_dir(root.path().join("usr/lib")).unwrap();
    let libraries = libraries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let modules: Vec<_> = libraries.filter(|name| name.contains(".so")).collect();
    assert_eq!(modules, ["libhsmux_pkcs11.so"], "and no stand-in");
    Run::new(root.path().join("usr/bin/hsmux"))
        .arg("--version")
        .ok()
        .says("hsmux");
    install(root.path(), "yes", "--remove");
    for file in FILES.iter().chain(LAB) {
        assert!(!root.path().join(file).exists(), "{file} is still there");
    }
}

/// A production host needs no measurements and no virtual cards.
#[test]
fn a_host_may_have_no_lab() {
    let root = TempDir::new().unwrap();
    install(root.path(), "no", "");
    for file in FILES {
        assert!(root.path().join(file).exists(), "{file}");
    }
    for file in LAB {
        assert!(!root.path().join(file).exists(), "{file} is there");
    }
    let build = |lab: &str| {
        let make = Run::new("make").dir(source());
        make.args("--no-print-directory --dry-run build").arg(lab)
    };
    build("LAB=no").ok().never_says("hsmux-lab");
    build("LAB=yes").ok().says("-p hsmux-lab");
}

/// The daemon may end as it means to, and `hsmux doctor` finds nothing wrong with the state folder.
#[test]
fn the_unit_is_what_the_daemon_needs() {
    let unit = fs::read_to_string(source().join("dist/hsmux.service")).unwrap();
    let setting = |key: &str| {
        let mut lines = unit.lines();
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    };
    assert_eq!(setting("StateDirectoryMode"), Some("0700"));
    // Else workers lock no memory, and do not start in their sandboxes.
    assert_eq!(setting("LimitMEMLOCK"), Some("infinity"));
    let calls = setting("SystemCallFilter").expect("a filter");
    for call in [
        "seccomp",
        "landlock_create_ruleset",
        "landlock_add_rule",
        "landlock_restrict_self",
    ] {
        assert!(calls.split(' ').any(|allowed| allowed == call), "{calls}");
    }
    let stop = setting("TimeoutStopSec");
    let stop = stop.and_then(|time| time.strip_suffix('s')?.parse::<u32>().ok());
    // As long as requests of the broker and of the gateway may take, the balancer's notice, and until the pool has ended.
    assert!(stop > Some(30 + 3 + 10 + 20), "{stop:?}");
}

/// The processes that clients reach have users of their own, and nothing that they do not need.
#[test]
fn the_units_of_services_are_hardened() {
    let users = fs::read_to_string(source().join("dist/hsmux.sysusers")).unwrap();
    for (service, capabilities) in [
        ("gateway", "CAP_NET_BIND_SERVICE"),
        ("broker", ""),
        ("node", ""),
    ] {
        let unit = format!("hsmux-{service}");
        let text = fs::read_to_string(source().join(format!("dist/{unit}.service"))).unwrap();
        let has = |line: &str| text.lines().any(|own| own == line);
        let bounds = format!("CapabilityBoundingSet={capabilities}");
        let user = format!("User={unit}");
        let program =
            format!("ExecStart=@BINDIR@/hsmux service {service} --config /etc/hsmux/hsmux.toml");
        for line in [
            &*bounds,
            &*user,
            &*program,
            "After=network.target hsmux.service",
            "PartOf=hsmux.service",
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
            "ProtectHome=yes",
            "PrivateDevices=yes",
            "MemoryDenyWriteExecute=yes",
            "MemorySwapMax=0",
            "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
            "SystemCallFilter=@system-service",
        ] {
            assert!(has(line), "{unit}: {line}");
        }
        assert!(users.contains(&format!("\nu {unit} - ")), "{users}");
        if service == "broker" {
            assert!(has("RuntimeDirectory=hsmux-broker"), "{unit}: its socket");
        }
    }
}

/// systemd understands each line. It is not on every machine that builds.
#[test]
fn systemd_reads_the_units() {
    let analyze = Path::new("/usr/bin/systemd-analyze");
    if !analyze.exists() {
        eprintln!("no systemd-analyze here");
        return;
    }
    let root = TempDir::new().unwrap();
    for unit in ["hsmux", "hsmux-gateway", "hsmux-broker", "hsmux-node"] {
        let file = format!("{unit}.service");
        let text = fs::read_to_string(source().join("dist").join(&file)).unwrap();
        let text = text.replace("@BINDIR@/hsmux", built(Program::Hsmux).to_str().unwrap());
        fs::write(root.path().join(file), text).unwrap();
    }
    for unit in ["hsmux", "hsmux-gateway", "hsmux-broker", "hsmux-node"] {
        let verify = Run::new(analyze).args("verify --man=no").dir(root.path());
        let verified = verify.arg(format!("./{unit}.service")).finish();
        verified.never_says(&format!("{unit}.service"));
        assert_eq!(verified.code, Some(0), "{verified}");
    }
}

/// On a system with nothing but Rust, `make build` is enough.
#[test]
fn a_build_brings_what_it_needs() {
    let make = Run::new("make")
        .dir(source())
        .args("--no-print-directory --dry-run build")
        .ok();
    let first = make.out.lines().next();
    assert_eq!(first, Some("scripts/deps.sh build"), "{make}");
    // It is a part of what tests need, which is there.
    let deps = Run::new(source().join("scripts/deps.sh")).arg("build").ok();
    assert_eq!(deps.out, "", "{deps}");
}

/// The version that Cargo.toml asks for is looked at before anything is installed or built.
#[test]
fn an_old_rust_is_named_before_anything_is_built() {
    let folder = TempDir::new().unwrap();
    let rustc = folder.path().join("rustc");
    let path = std::env::var("PATH").unwrap();
    let deps = |says: &str| {
        fs::write(&rustc, format!("#!/bin/sh\n{says}\n")).unwrap();
        fs::set_permissions(&rustc, fs::Permissions::from_mode(0o755)).unwrap();
        Run::new(source().join("scripts/deps.sh"))
            .env("PATH", format!("{}:{path}", folder.path().display()))
            .arg("build")
    };
    let version = |version: &str| deps(&format!("echo 'rustc {version} (0123456 2025-01-01)'"));
    let manifest = fs::read_to_string(source().join("Cargo.toml")).unwrap();
    let mut lines = manifest.lines();
    let needed = lines.find_map(|line| line.strip_prefix("rust-version = \""));
    let needed = needed.unwrap().trim_end_matches('"');
    let or_newer = format!("{needed} or newer");
    for old in ["1.9.0", "1.87.3"] {
        let refused = version(old).fails();
        let is_old = format!("{} is {old}", rustc.display());
        refused.says("too old").says(&is_old).says(&or_newer);
        refused.says("rustup update");
    }
    for good in [&format!("{needed}.0"), "1.100.0", "2.0.0-nightly"] {
        assert_eq!(version(good).ok().all(), "");
    }
    // rustup without a toolchain is no Rust either.
    deps("exit 1").fails().says("missing").says(&or_newer);
    for page in ["README.md", "CONTRIBUTING.md", "docs/guide.md"] {
        let text = fs::read_to_string(source().join(page)).unwrap();
        assert!(text.contains(&format!("Rust {or_newer}")), "{page}");
    }
}
