//! `make install` puts everything where a system looks for it, and `make uninstall` takes it away.

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
    "usr/lib/sysusers.d/hsmux.conf",
];

fn install(root: &Path, more: &str) {
    Run::new(source().join("scripts/install.sh"))
        .env("DESTDIR", root)
        .env("PREFIX", "/usr")
        .env("LIBDIR", "/usr/lib")
        .env("UNITDIR", "/usr/lib/systemd/system")
        .env("SYSUSERSDIR", "/usr/lib/sysusers.d")
        .env("BUILT", built(Program::Hsmux).parent().unwrap())
        .args(more)
        .ok();
}

#[test]
fn installs_and_removes() {
    let root = TempDir::new().unwrap();
    install(root.path(), "");
    for file in FILES {
        assert!(
            root.path()
                .join(file)
                .metadata()
                .is_ok_and(|data| data.len() > 0),
            "{file}"
        );
    }
    Run::new(root.path().join("usr/bin/hsmux"))
        .arg("--version")
        .ok()
        .says("hsmux");
    install(root.path(), "--remove");
    for file in FILES {
        assert!(!root.path().join(file).exists(), "{file} is still there");
    }
}
