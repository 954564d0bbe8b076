//! The comparison of other projects' test suites is itself tested, and its reasons are those of the documentation.

use hsmux_suite::{Run, source};

#[test]
fn the_comparison_and_its_reasons_are_right() {
    let run = Run::new("/usr/bin/python3")
        .dir(&source().join("tests/judges"))
        .args("-B -m unittest --verbose test_compare")
        .ok();
    run.says("test_a_new_failure_fails");
}
