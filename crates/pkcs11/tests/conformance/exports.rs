//! The built library: what it exports, and what loading it does not do.

use std::path::PathBuf;
use std::process::Command;

/// Cargo builds it beside the tests.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    folder.join("libhsmux_pkcs11.so")
}

/// The output of a program of binutils for it.
fn of_built(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).arg(built()).output();
    let output = output.expect("a program of binutils");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_c_functions_and_the_providers_are_exported_and_nothing_else() {
    let symbols = of_built("nm", &["-D", "--defined-only"]);
    let names: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    let known = |name: &&str| name.starts_with("C_") || *name == "OSSL_provider_init";
    assert!(names.iter().all(known), "{names:?}");
    // 68 of 2.40, 24 of 3.0 (PKCS#11 3.0, pkcs11f.h), and the one of OpenSSL's (provider(7)).
    assert_eq!(names.len(), 68 + 24 + 1);
}

#[test]
fn no_runtime_is_linked() {
    let all = of_built("nm", &["-C"]);
    assert!(!all.contains("tokio::"), "tokio");
}

/// A program may have another version of it than we, or another library in its place.
#[test]
fn no_openssl_is_linked() {
    let needed = of_built("readelf", &["-d"]);
    let wanted = of_built("nm", &["-D", "--undefined-only"]);
    for name in ["libcrypto", "libssl"] {
        assert!(!needed.contains(name), "{needed}");
    }
    assert!(!wanted.contains("OSSL_"), "{wanted}");
}

#[test]
fn it_stays_mapped_when_it_is_unloaded() {
    assert!(of_built("readelf", &["-d"]).contains("NODELETE"));
}
