//! What cargo-deny cannot say: which way the arrows between crates point, what the module may carry
//! into an application, and where `unsafe` may stand.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use hsmux_suite::{Run, source};

/// Crates from the bottom up; each may depend only on crates of lower layers.
const LAYERS: &[&[&str]] = &[
    &["hsmux-token", "hsmux-layout"],
    &["hsmux-state", "hsmux-config"],
    &["hsmux-software", "hsmux-audit", "hsmux-edge"],
    &["hsmux-wire", "hsmux-module", "hsmux-smartcard"],
    &["hsmux-pool", "hsmux-vcard"],
    &["hsmux-replicate", "hsmux-worker"],
    &["hsmux-traces", "hsmux-service"],
    &[
        "hsmux-daemon",
        "hsmux-broker",
        "hsmux-gateway",
        "hsmux-pkcs11",
        "hsmux-bench",
        "hsmux-node",
    ],
    &["hsmux-console"],
    &["hsmux-cli", "hsmux-lab"],
];

/// Where `unsafe` may stand: the two sides of the C interface, the vendor's one in tests, the two functions of
/// BoringSSL that have no safe face, and the allocator that overwrites what is freed. docs/internals/unsafe.md says why.
const UNSAFE: &[&str] = &[
    "crates/module",
    "crates/pkcs11",
    "crates/gateway/src/ticket_keys/callback.rs",
    "crates/gateway/src/ticket_keys/send.rs",
    "crates/token/src/wiping.rs",
    "tests/standin",
];

fn dependencies(package: &str, depth: &str) -> BTreeSet<String> {
    let tree = Run::new(env!("CARGO"))
        .dir(source())
        .args("tree --offline --edges normal --prefix none --format {p}")
        .args(&format!("{depth} -p {package}"))
        .ok();
    let first_word = |line: &str| line.split(' ').next().map(str::to_owned);
    tree.out.lines().skip(1).filter_map(first_word).collect()
}

#[test]
fn arrows_point_down() {
    for (height, layer) in LAYERS.iter().enumerate() {
        let below: BTreeSet<_> = LAYERS[..height].concat().into_iter().collect();
        for package in *layer {
            for dependency in dependencies(package, "--depth 1") {
                let ours = dependency.starts_with("hsmux-");
                let fine = !ours || below.contains(dependency.as_str());
                assert!(fine, "{package} may not depend on {dependency}");
            }
        }
    }
}

#[test]
fn every_crate_has_its_layer() {
    let crates = fs::read_dir(source().join("crates")).unwrap();
    for folder in crates {
        let name = format!("hsmux-{}", folder.unwrap().file_name().display());
        assert!(
            LAYERS.concat().contains(&name.as_str()),
            "{name} has no layer"
        );
    }
}

/// An application that loads the module gets no runtime, no HTTP and no TLS with it, and no locks that
/// a fork's child cannot use ([`hsmux_token::sync`]).
#[test]
fn the_module_carries_no_runtime() {
    let carried = dependencies("hsmux-pkcs11", "");
    assert!(carried.contains("hsmux-wire"), "{carried:?}");
    for banned in [
        "tokio",
        "async-std",
        "smol",
        "hyper",
        "rustls",
        "clap",
        "opentelemetry",
        "tracing-subscriber",
        "parking_lot",
    ] {
        assert!(!carried.contains(banned), "the module depends on {banned}");
    }
}

/// Production hosts need neither measurements nor virtual cards.
#[test]
fn hsmux_carries_no_lab() {
    let carried = dependencies("hsmux-cli", "");
    assert!(carried.contains("hsmux-console"), "{carried:?}");
    for banned in ["hsmux-bench", "hsmux-vcard"] {
        assert!(!carried.contains(banned), "hsmux depends on {banned}");
    }
}

#[test]
fn unsafe_stands_at_the_borders_only() {
    let mut outside = Vec::new();
    for folder in ["crates", "fuzz/fuzz_targets", "tests"] {
        visit(&source().join(folder), &mut |path| {
            let relative = path.strip_prefix(source()).unwrap();
            let at_border = UNSAFE.iter().any(|border| relative.starts_with(border));
            if !at_border && fs::read_to_string(path).unwrap().lines().any(is_unsafe) {
                outside.push(relative.to_owned());
            }
        });
    }
    assert!(outside.is_empty(), "unsafe code in {outside:?}");
}

fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    ["{", "fn", "impl", "extern", "trait"].iter().any(|what| {
        code.contains(&format!("unsafe {what}")) || code.contains(&format!("unsafe{what}"))
    }) || code.contains("allow(unsafe_code)")
}

fn visit(folder: &Path, seen: &mut impl FnMut(&PathBuf)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            visit(&path, seen);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("borders.rs")
        {
            seen(&path);
        }
    }
}

/// An integer that overflows ends a request. It does not become a wrong length.
#[test]
fn releases_check_for_overflows() {
    let manifest = fs::read_to_string(source().join("Cargo.toml")).expect("a manifest");
    let (_, release) = manifest.split_once("[profile.release]").expect("a profile");
    let release = release.split("\n[").next().expect("its lines");
    assert!(
        release.lines().any(|line| line == "overflow-checks = true"),
        "{release}"
    );
    assert_eq!(
        manifest.matches("overflow-checks").count(),
        1,
        "another profile"
    );
}
