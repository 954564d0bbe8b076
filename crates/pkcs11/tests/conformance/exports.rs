//! The built library: what it exports, and what loading it does not do.

use std::path::PathBuf;
use std::process::Command;

/// Cargo builds it beside the tests.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    folder.join("libhsmux_pkcs11.so")
}

/// What a program of binutils says of it.
fn of_built(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).arg(built()).output();
    let output = output.expect("a program of binutils");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_c_functions_are_exported_and_nothing_else() {
    let symbols = of_built("nm", &["-D", "--defined-only"]);
    let names: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    assert!(names.iter().all(|name| name.starts_with("C_")), "{names:?}");
    // 68 of 2.40, and 24 of 3.0 (PKCS#11 3.0, pkcs11f.h).
    assert_eq!(names.len(), 68 + 24);
}

#[test]
fn no_runtime_is_linked() {
    let all = of_built("nm", &["-C"]);
    assert!(!all.contains("tokio::"), "tokio");
}

#[test]
fn it_stays_mapped_when_it_is_unloaded() {
    assert!(of_built("readelf", &["-d"]).contains("NODELETE"));
}
