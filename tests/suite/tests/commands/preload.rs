//! Programs of others inside hsmux: libraries that LD_PRELOAD or a vendor's module brings.

use std::process::Command;

use hsmux_suite::{Program, built};

#[test]
fn a_preloaded_library_that_frees_memory_early_harms_nothing() {
    // Its constructor calls dlsym, which frees memory, before hsmux's own constructors run.
    let mut faketime = Command::new("faketime");
    let version = faketime
        .arg("2030-01-01")
        .arg(built(Program::Hsmux))
        .arg("--version");
    let output = version.output().expect("faketime");
    assert!(output.status.success(), "{output:?}");
    let expected = format!("hsmux {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn vendors_modules_have_the_c_librarys_allocator() {
    let nm = Command::new("nm")
        .args(["--dynamic", "--defined-only"])
        .arg(built(Program::Hsmux))
        .output()
        .expect("nm");
    assert!(nm.status.success(), "{nm:?}");
    let names = String::from_utf8_lossy(&nm.stdout);
    let own = names
        .lines()
        .find(|line| line.ends_with(" malloc") || line.ends_with(" free"));
    assert_eq!(own, None);
}
