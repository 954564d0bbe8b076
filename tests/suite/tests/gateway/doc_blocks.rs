//! Blocks of docs/gateway.md that tests use as configurations.

use std::fs;

use hsmux_suite::source;

/// The first fenced block of a language below a heading of that page.
pub fn block(heading: &str, language: &str) -> String {
    let page = fs::read_to_string(source().join("docs/gateway.md")).expect("the page");
    let (_, section) = page
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("no heading {heading}"));
    let section = section.split("\n## ").next().expect("its text");
    let (_, block) = section
        .split_once(&format!("```{language}\n"))
        .unwrap_or_else(|| panic!("{heading}: no block of {language}"));
    block.split_once("```").expect("its end").0.to_owned()
}
