//! `make demo`, with what was built for the tests and short measurements.

use std::fs;

use hsmux_suite::{Finished, PATIENCE, Program, Run, built, running_in, source, until};
use tempfile::TempDir;

/// The demo, which makes its folder in this one.
fn demo(folder: &TempDir, time: &str) -> Run {
    Run::new(source().join("scripts/demo.sh"))
        .env("HSMUX_BUILT", built(Program::Hsmux).parent().unwrap())
        .env("TMPDIR", folder.path())
        .env("TIME", time)
        .limit(600)
}

fn until_no_process_is_left(folder: &TempDir) {
    until("no process is left", PATIENCE, || {
        running_in(folder.path()).is_empty().then_some(())
    });
}

/// The rows below a heading, up to a line of another shape.
fn table<'t>(demo: &'t Finished, heading: &str) -> Vec<Vec<&'t str>> {
    let rows = demo
        .out
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let columns = heading.split_whitespace().count();
    rows.skip_while(|row| row.join(" ") != heading)
        .skip(1)
        .take_while(|row| row.len() == columns)
        .collect()
}

/// Twice a measurement during a fault: with a card that is pulled out, and with a worker that is killed.
fn lost_no_signature(demo: &Finished, cards: usize) {
    let (fault, back) = demo
        .out
        .split_once(" unplug > cards.txt\n")
        .expect("a card is pulled out");
    assert!(fault.ends_with(&format!("hsmux vcard fault {}", cards - 1)));
    let (pulled, back) = back
        .split_once(" plug > cards.txt\n")
        .expect("the card comes back");
    assert_eq!(pulled.matches(" serving ").count(), cards - 1, "{demo}");
    let (back, others) = back.split_once("\n7. ").expect("other tokens");
    assert_eq!(back.matches(" serving ").count(), cards, "{demo}");
    let (_, killed) = others.split_once("kill -9 ").expect("a killed worker");
    for load in [pulled, killed] {
        let value = |name: &str| {
            let line = load.lines().find_map(|line| line.strip_prefix(name));
            let line = line.unwrap_or_else(|| panic!("{name}\n{demo}"));
            line.split_whitespace()
                .next()
                .unwrap()
                .trim_matches(',')
                .to_owned()
        };
        assert_eq!(value("failed "), "0", "{demo}");
        assert_eq!(value("done "), value("verified "), "{demo}");
    }
    demo.says("Verified OK").says("no signature was lost");
}

/// Each number becomes one sign, since it differs from run to run.
fn without_numbers(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        let digits = word.trim_end_matches('.');
        let is_number = digits.parse::<f64>().is_ok();
        if is_number { "#" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The output in README, line by line.
fn says_what_the_readme_shows(demo: &Finished) {
    let readme = fs::read_to_string(source().join("README.md")).unwrap();
    let (_, section) = readme.split_once("\n## The demo\n").unwrap();
    let (_, block) = section.split_once("```text\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let said: Vec<_> = demo.out.lines().map(without_numbers).collect();
    for line in block.lines() {
        assert!(said.contains(&without_numbers(line)), "{line}\n{demo}");
    }
}

/// The factor of cards that work one after the other is 1. A busy machine changes it, so `make bench` holds it to more.
#[test]
fn the_demo_scales_loses_no_signature_and_leaves_no_process() {
    let folder = TempDir::new().unwrap();
    let demo = demo(&folder, "2s").ok();
    says_what_the_readme_shows(&demo);
    lost_no_signature(&demo, 8);
    let rows = table(&demo, "cards signatures/s factor published/s");
    let column = |at: usize| rows.iter().map(|row| row[at]).collect::<Vec<_>>();
    assert_eq!(column(0), ["1", "2", "4", "8"], "{demo}");
    assert_eq!(column(3), ["4.10", "8.40", "16.6", "32.9"], "{demo}");
    let factor: f64 = rows[3][2].parse().expect("a number");
    assert!(factor > 2.0, "{demo}");

    let report = folder.path().join("hsmux-demo-report.html");
    let report = fs::read_to_string(report).unwrap();
    for part in [
        "by 1, 2, 4 and 8 members of pool web (virtual SmartCard-HSM)",
        "<svg",
        "published: SmartCard-HSM, ec-brainpoolP256r1",
    ] {
        assert!(report.contains(part), "{part}");
    }
    until_no_process_is_left(&folder);
}

/// What it prints for the next terminal is done, line by line.
#[test]
fn the_demo_leaves_the_cards_running_if_asked_to() {
    let folder = TempDir::new().unwrap();
    let demo = demo(&folder, "1s").env("CARDS", "2").env("KEEP", "1").ok();
    let kept = Kept(&demo);
    lost_no_signature(&demo, 2);
    let (how, end) = kept.commands();
    shell(&how)
        .says("resting")
        .says("Private Key Object")
        .says("verified    20");
    assert!(!running_in(folder.path()).is_empty(), "{demo}");
    shell(&format!("{}\n{end}", how.lines().next().unwrap()));
    until_no_process_is_left(&folder);
}

fn shell(script: &str) -> Finished {
    Run::new("sh").arg("-ec").arg(script).ok()
}

/// Cards that the demo has left running; they end if a test fails before.
struct Kept<'d>(&'d Finished);

impl Kept<'_> {
    /// The commands that use the cards, and the command that ends them.
    fn commands(&self) -> (String, String) {
        let (_, said) = self.0.out.split_once(" run. In another terminal:").unwrap();
        let (how, end) = said.split_once("To end it").unwrap();
        let commands = |text: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix("  "));
            lines.collect::<Vec<_>>().join("\n")
        };
        (commands(how), commands(end))
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (how, end) = self.commands();
            let first = how.lines().next().unwrap_or_default();
            let _ = Run::new("sh")
                .arg("-c")
                .arg(format!("{first}\n{end}"))
                .finish();
        }
    }
}
