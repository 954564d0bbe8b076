//! Wrapped keys that were damaged on their way are refused, as on the bare token, and harm nobody.

use hsmux_suite::Setup;

#[test]
fn bare() {
    damaged(Setup::Bare, 1);
}

#[test]
fn a_pool_of_one() {
    damaged(Setup::Daemon, 1);
}

#[test]
fn a_pool_of_three() {
    damaged(Setup::Daemon, 3);
}

fn damaged(setup: Setup, members: usize) {
    let run = crate::in_turns("damaged.py", setup, members);
    run.says("codes: 0x5×27 0x112×3");
    run.says("left: 0");
    run.says("the undamaged one is the key: True");
}
