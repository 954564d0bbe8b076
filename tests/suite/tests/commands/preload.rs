//! Programs of others inside hsmux: libraries that LD_PRELOAD or a vendor's module brings.

use std::fs;
use std::process::Command;

use hsmux_suite::{Program, Rig, Setup, built};

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

/// The workers have it too. Its clocks are years ahead of the kernel's.
#[test]
fn a_daemon_serves_with_a_preloaded_library_that_sets_the_clock() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.write_config();
    let faketime = rig.run("faketime").arg("2030-01-01");
    rig.start_by(faketime.arg(built(Program::Hsmux)).arg("serve"));
    rig.wait_for_members(1);
    let log = rig.daemon.as_ref().expect("the daemon").log();
    assert!(log.contains("2030-01-01T"), "{log}");
    fs::write(rig.path("text"), "a text").expect("a file to sign");
    let sign =
        "--sign --mechanism SHA256-RSA-PKCS --id 01 --input-file text --output-file signature";
    rig.pkcs11_tool(sign).ok();
    assert_eq!(fs::read(rig.path("signature")).expect("it").len(), 256);
    rig.hsmux("stop").ok();
    rig.daemon.take().expect("the daemon").wait();
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
