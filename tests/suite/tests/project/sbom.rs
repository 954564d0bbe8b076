//! The bill of materials names every crate that ships.

use std::collections::BTreeSet;
use std::fs;

use hsmux_suite::{Run, source};
use serde_json::Value;

/// Crates of the programs, by cargo itself: `name@version`.
fn shipped() -> BTreeSet<String> {
    let tree = Run::new(env!("CARGO"))
        .dir(source())
        .args("tree --offline --edges normal,no-proc-macro --prefix none --format {p}")
        .args("--target x86_64-unknown-linux-gnu -p hsmux-cli -p hsmux-lab -p hsmux-pkcs11")
        .ok();
    let lines = tree.out.lines().filter(|line| !line.trim().is_empty());
    let name = |line: &str| {
        let mut words = line.split(' ');
        let (name, version) = (words.next()?, words.next()?);
        Some(format!("{name}@{}", version.strip_prefix('v')?))
    };
    lines.filter_map(name).collect()
}

#[test]
fn the_bill_of_materials_has_every_crate_that_ships() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sbom.json");
    let write = || {
        Run::new("scripts/sbom.py").dir(source()).arg(&file).ok();
        fs::read_to_string(&file).unwrap()
    };
    let text = write();
    assert_eq!(write(), text, "another file of the same sources");
    let bom: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&bom["bomFormat"], &bom["specVersion"]),
        (&"CycloneDX".into(), &"1.5".into())
    );
    let components = bom["components"].as_array().unwrap();
    let word = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    let refs: BTreeSet<_> = components.iter().map(|one| word(one, "bom-ref")).collect();
    assert_eq!(refs, shipped());
    for one in components {
        let (name, version) = (word(one, "name"), word(one, "version"));
        assert_eq!(word(one, "purl"), format!("pkg:cargo/{name}@{version}"));
        assert!(one["licenses"].is_array(), "{name} has no licence");
        let ours = name.starts_with("hsmux-");
        assert!(ours || one["hashes"].is_array(), "{name} has no hash");
    }
    for one in bom["dependencies"].as_array().unwrap() {
        for other in one["dependsOn"].as_array().unwrap() {
            assert!(
                refs.contains(other.as_str().unwrap()),
                "{other} is no component"
            );
        }
    }
}
