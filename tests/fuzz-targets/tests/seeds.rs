//! Every stored seed, and every input that once was a finding, passes its target.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use hsmux_fuzz_targets::{TARGETS, run};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.map(|entry| name(entry.unwrap())).collect()
}

#[test]
fn every_seed_passes_its_target() {
    for (target, _) in TARGETS {
        let folder = fuzz().join("seeds").join(target);
        let seeds = names(&folder);
        assert!(seeds.len() >= 5, "{target} has {} seeds", seeds.len());
        for seed in seeds {
            println!("{target}/{seed}");
            run(target, &fs::read(folder.join(seed)).unwrap());
        }
    }
}

/// Seeds are where a fuzzer begins: cut short or with a byte changed, they go elsewhere.
#[test]
fn seeds_that_are_damaged_pass_their_targets() {
    for (target, _) in TARGETS {
        let folder = fuzz().join("seeds").join(target);
        for seed in names(&folder) {
            println!("{target}/{seed}");
            let mut bytes = fs::read(folder.join(seed)).unwrap();
            let step = 1 + bytes.len() / 16;
            for at in (0..bytes.len()).step_by(step) {
                run(target, &bytes[..at]);
                let bit = 1 << (at % 8);
                bytes[at] ^= bit;
                run(target, &bytes);
                bytes[at] ^= bit;
            }
        }
    }
}

#[test]
fn every_target_has_its_program_and_its_seeds() {
    let targets: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&fuzz().join("seeds")), targets);
    let programs = names(&fuzz().join("fuzz_targets"));
    let programs: BTreeSet<_> = programs
        .iter()
        .map(|file| file.trim_end_matches(".rs").to_owned())
        .collect();
    assert_eq!(programs, targets);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for target in targets {
        assert!(
            manifest.contains(&format!("name = \"{target}\"")),
            "{target}"
        );
    }
}
