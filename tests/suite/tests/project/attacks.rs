//! The known attacks, a few of each: `make attacks` has all of them, with stricter bounds.

use hsmux_suite::{Program, Run, built, source};

/// Several times what they take on a quiet machine, in seconds.
const LONGEST: u64 = 900;

#[test]
fn the_known_attacks_are_in_vain() {
    let [hsmux, _, _] = [Program::Hsmux, Program::Module, Program::StandIn].map(built);
    let binaries = hsmux.parent().unwrap();
    Run::new(source().join("tests/attacks/run"))
        .args("--quick --bin")
        .arg(binaries)
        .limit(LONGEST)
        .ok()
        .says("every bound holds");
}
