//! The cache of short files: current content is served, as a whole and in part.

use std::fs;
use std::os::unix::fs::symlink;

use crate::rig::Gateway;

/// A file that has not changed for a while, so that it is cached from its first answer on.
const OLD: &str = "/etc/debian_version";

#[test]
fn a_cached_file_is_served_in_its_current_state() {
    let gateway = Gateway::with_folder();
    let path = |name: &str| gateway.rig.path("www").join(name);
    let ask = |more: &str| gateway.curl("a.test", "/old.txt", more);
    symlink(OLD, path("old.txt")).expect("a link");
    let old = fs::read_to_string(OLD).expect("a file");
    let length = format!("content-length: {}", old.len());
    for version in ["--http1.1", "--http2", "--http1.1"] {
        let answer = ask(version);
        answer.says(" 200").says(old.trim()).says(&length);
        answer.says("text/plain").says("last-modified: ");
        answer.says("strict-transport-security: ");
    }
    ask("--range 0-0").says(" 206").says("content-length: 1");
    ask("--head").says(" 200").says(&length);
    ask("--header If-None-Match:*").says(" 304");
    fs::write(path("new"), "another page\n").expect("a page");
    fs::rename(path("new"), path("old.txt")).expect("a page");
    ask("").says(" 200").says("another page");
    fs::write(path("old.txt"), "a longer page\n").expect("a page");
    ask("").says(" 200").says("a longer page");
    fs::remove_file(path("old.txt")).expect("no page");
    ask("").says(" 404");
}
