//! The book: every page is in it, every link leads somewhere, and tables name what there is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use hsmux_suite::{Program, Rig, Setup, built, source};

fn read(page: impl AsRef<Path>) -> String {
    let path = source().join(page);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The pages in a folder, from the root.
fn pages(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(source().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let names = paths.map(|path| path.file_name().unwrap().display().to_string());
    let mut pages: Vec<_> = names.map(|name| format!("{folder}/{name}")).collect();
    pages.sort();
    pages
}

/// All pages for people.
fn all_pages() -> Vec<String> {
    let root = ["README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY"];
    let root = root.map(|page| format!("{page}.md"));
    let folders = ["docs", "docs/internals", "docs/measurements"].map(pages);
    root.into_iter()
        .chain(folders.into_iter().flatten())
        .collect()
}

/// The text outside fenced blocks, line by line.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

/// The targets of a page's links, those to other sites left out.
fn links(text: &str) -> Vec<&str> {
    let in_line = |line| str::split(line, "](").skip(1);
    let targets = prose(text).flat_map(in_line);
    let targets = targets.filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains("://")).collect()
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let headings = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    headings
        .map(|heading| heading.replace(|c| !kept(c), "").replace(' ', "-"))
        .collect()
}

/// The file that a link of a page leads to, from the root, and the anchor in it.
fn target<'l>(page: &str, link: &'l str) -> (PathBuf, Option<&'l str>) {
    let (file, anchor) = match link.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (link, None),
    };
    let page = Path::new(page);
    if file.is_empty() {
        return (page.to_owned(), anchor);
    }
    let mut path = page.parent().unwrap().to_owned();
    for part in file.split('/') {
        match part {
            ".." => _ = path.pop(),
            part => path.push(part),
        }
    }
    (path, anchor)
}

#[test]
fn the_book_has_every_page_and_no_other() {
    let summary = "docs/SUMMARY.md";
    let text = read(summary);
    let listed: Vec<_> = links(&text);
    let listed = listed.into_iter().map(|link| target(summary, link).0);
    let listed: BTreeSet<_> = listed.map(|path| path.display().to_string()).collect();
    let there = all_pages()
        .into_iter()
        .filter(|page| page.starts_with("docs/"));
    let there: BTreeSet<_> = there.filter(|page| page != summary).collect();
    let lacks: Vec<_> = there.difference(&listed).collect();
    let more: Vec<_> = listed.difference(&there).collect();
    assert!(lacks.is_empty(), "{summary} lacks {lacks:?}");
    assert!(
        more.is_empty(),
        "{summary} lists {more:?}, which is not there"
    );
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for page in all_pages() {
        let text = read(&page);
        for link in links(&text) {
            let (file, anchor) = target(&page, link);
            let path = source().join(&file);
            let leads = match anchor {
                None => path.exists(),
                Some(anchor) => path.is_file() && anchors(&read(&file)).contains(anchor),
            };
            if !leads {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Short enough for one reading, and for a terminal.
#[test]
fn the_readme_is_short() {
    let text = read("README.md");
    assert!(text.lines().count() <= 120, "{}", text.lines().count());
    let long: Vec<_> = text
        .lines()
        .filter(|line| line.chars().count() > 120)
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

/// `hsmux man` and `hsmux-lab man` write a page for each command; what is no group alone is in the list of commands.
#[test]
fn the_list_of_commands_is_complete() {
    let rig = Rig::prepare(Setup::Daemon, 0);
    rig.hsmux("man pages").ok();
    rig.run(built(Program::Lab)).args("man pages").ok();
    let names = fs::read_dir(rig.path("pages")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<_> = names
        .map(|name| name.trim_end_matches(".1").replace("hsmux-lab", "hsmux"))
        .collect();
    assert!(names.contains("hsmux-token-park"), "{names:?}");
    let page = read("docs/commands.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed = rows.map(|row| row.split_once('`').unwrap().0.replace(' ', "-"));
    let listed: BTreeSet<_> = listed.collect();
    let unknown: Vec<_> = listed.difference(&names).collect();
    assert!(unknown.is_empty(), "there is no {unknown:?}");
    // A group does nothing by itself, but for those that the page lists.
    let is_group = |name: &str| {
        names
            .iter()
            .any(|other| other.starts_with(&format!("{name}-")))
    };
    let missing = names.difference(&listed).filter(|name| !is_group(name));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "docs/commands.md lacks {missing:?}");
}

/// The codes of the page are codes that the module knows by name.
#[test]
fn every_code_of_the_troubleshooting_is_known() {
    let known = read("crates/token/src/rv.rs");
    let known: BTreeSet<_> = known
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    let page = read("docs/troubleshooting.md");
    let (_, table) = page.split_once("## By CKR_ code").expect("the table");
    let (table, _) = table.split_once("\n## ").expect("the next part");
    let rows = table.lines().filter(|line| line.starts_with("| CKR_"));
    let codes: Vec<_> = rows
        .flat_map(|row| row.trim_matches('|').split_once('|').unwrap().0.split(','))
        .map(str::trim)
        .collect();
    assert!(codes.len() > 25, "{codes:?}");
    for code in &codes {
        assert!(known.contains(code), "there is no {code}");
    }
    assert!(codes.is_sorted(), "{codes:?}");
}

/// The commands of the figures name parts of `make bench`.
#[test]
fn every_figure_can_be_repeated() {
    let parts = read("tests/suite/src/bin/figures/main.rs");
    let page = read("docs/performance.md");
    let commands: Vec<_> = page.split("bench.sh --only ").skip(1).collect();
    assert!(commands.len() > 40, "{}", commands.len());
    for command in commands {
        let part = command.split([' ', '`']).next().unwrap();
        let row = format!("(\"{part}\", |effort");
        assert!(
            part == "PART" || parts.contains(&row),
            "there is no part {part}"
        );
    }
}
