//! Commands in the documentation are commands that work: every `sh` block of the guide is run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hsmux_suite::{Program, Rig, Setup, built, source};

/// Runs the blocks of one page, in their order, in one shell and one folder.
///
/// A block marked `sh` is run, one marked `console` is shown only. `hsmux` and the module are the ones
/// just built, as they would be after `make install`.
fn run_page(page: &str) {
    let text = fs::read_to_string(source().join(page)).unwrap();
    let script: String = blocks(&text, "sh").collect();
    assert!(!script.is_empty(), "{page} has no sh block");
    let rig = Rig::prepare(Setup::Daemon, 0);
    let folder = built(Program::Hsmux).parent().unwrap().to_owned();
    let script = script.replace(
        "/usr/local/lib/libhsmux_pkcs11.so",
        &built(Program::Module).display().to_string(),
    );
    // A network of its own, so that the ports which a page names are nobody else's.
    let script =
        format!("trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\nip link set lo up\n{script}");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    // Servers of a page leave root.
    fs::set_permissions(rig.path(""), fs::Permissions::from_mode(0o711)).unwrap();
    fs::create_dir(rig.path("page")).unwrap();
    // Whatever the page leaves running ends with its shell, the first process of its own.
    rig.run("unshare")
        .args("--net --fork --pid --mount-proc --kill-child -- bash -euxo pipefail -s")
        .dir(&rig.path("page"))
        .env("PATH", path)
        .env("HSMUX_CONFIG", "")
        .input(script)
        .limit(600)
        .ok();
}

/// The contents of the fenced blocks of one language.
fn blocks<'t>(text: &'t str, language: &str) -> impl Iterator<Item = &'t str> {
    let fence = format!("```{language}\n");
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(&fence)?;
        let (block, after) = after.split_once("```")?;
        rest = after;
        Some(block)
    })
}

#[test]
fn the_readme_works() {
    run_page("README.md");
}

#[test]
fn the_guide_works() {
    run_page("docs/guide.md");
}

#[test]
fn the_page_of_migration_works() {
    run_page("docs/migrate.md");
}

#[test]
fn the_page_of_virtual_cards_works() {
    run_page("docs/vcard.md");
}

#[test]
fn the_page_of_the_audit_trail_works() {
    run_page("docs/audit.md");
}

#[test]
fn the_page_of_the_broker_works() {
    run_page("docs/broker.md");
}

#[test]
fn the_page_of_the_gateway_works() {
    run_page("docs/gateway.md");
}

#[test]
fn the_page_of_acme_works() {
    run_page("docs/acme.md");
}

#[test]
fn the_page_of_other_servers_works() {
    run_page("docs/servers.md");
}

#[test]
fn the_page_of_several_hosts_works() {
    run_page("docs/nodes.md");
}

#[test]
fn the_page_of_the_web_cluster_works() {
    run_page("docs/web-cluster.md");
}

#[test]
fn the_page_of_replacing_a_service_works() {
    run_page("docs/replace-your-encryption-service.md");
}

/// The page of the configuration is printed by the program, so that both say the same.
#[test]
fn the_configuration_page_is_the_programs_own() {
    let page = fs::read_to_string(source().join("docs/configuration.md")).unwrap();
    let printed = Rig::prepare(Setup::Daemon, 0)
        .hsmux("config schema")
        .ok()
        .out;
    assert!(
        page == printed,
        "docs/configuration.md is old: `hsmux config schema` prints it"
    );
}

/// The pages about security name tests, as `` `end/of/path.rs::test` ``; a claim of the threat model and a limit name
/// one at least.
#[test]
fn every_test_that_a_claim_names_exists() {
    let files = rust_files(source());
    for page in ["docs/threat-model.md", "docs/security.md"] {
        let text = fs::read_to_string(source().join(page)).unwrap();
        let named: Vec<_> = text
            .split('`')
            .filter_map(|word| word.split_once(".rs::"))
            .collect();
        assert!(named.len() > 20, "{page} names {} tests", named.len());
        for (file, test) in named {
            assert!(
                has_test(&files, file, test),
                "{page}: there is no {file}.rs::{test}"
            );
        }
    }
    let model = fs::read_to_string(source().join("docs/threat-model.md")).unwrap();
    let (_, borders) = model.split_once("## Borders").unwrap();
    let (borders, _) = borders.split_once("## Remaining risks").unwrap();
    let claims = borders
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| claim"));
    for claim in claims {
        assert!(claim.contains(".rs::"), "no test holds this claim: {claim}");
    }
    let security = fs::read_to_string(source().join("docs/security.md")).unwrap();
    let (_, limits) = security.split_once("## Limits").unwrap();
    let (limits, _) = limits.split_once("\n## ").unwrap();
    let limits = limits.lines().filter(|line| {
        let is_row = line.starts_with("| ");
        is_row && !line.starts_with("| **") && !line.starts_with("| limit |")
    });
    for limit in limits {
        assert!(limit.contains(".rs::"), "no test holds this limit: {limit}");
    }
}

/// The page of the architecture and its design notes name files and tests that exist.
#[test]
fn the_architecture_names_what_exists() {
    let files = rust_files(source());
    let notes = fs::read_dir(source().join("docs/internals")).unwrap();
    let notes = notes.map(|entry| entry.unwrap().path());
    for page in notes.chain([source().join("ARCHITECTURE.md")]) {
        let text = fs::read_to_string(&page).unwrap();
        let page = page.display();
        for word in text.split('`') {
            let folders = ["crates/", "docs/", "tests/"];
            let is_path = folders.iter().any(|folder| word.starts_with(folder));
            if let Some((file, test)) = word.split_once(".rs::") {
                assert!(has_test(&files, file, test), "{page}: no {word}");
            } else if is_path && !word.contains(char::is_whitespace) {
                assert!(source().join(word).exists(), "{page}: no {word}");
            }
        }
    }
}

fn has_test(files: &[PathBuf], file: &str, test: &str) -> bool {
    let mut named = files
        .iter()
        .filter(|path| path.ends_with(format!("{file}.rs")));
    named.any(|path| {
        fs::read_to_string(path)
            .unwrap()
            .contains(&format!("fn {test}("))
    })
}

/// The sources below `crates` and `tests`.
fn rust_files(root: &Path) -> Vec<PathBuf> {
    let mut folders = vec![root.join("crates"), root.join("tests")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}
