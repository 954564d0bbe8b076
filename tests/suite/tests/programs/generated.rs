//! Generated keys say how they came to be, and halves of a pair are where they belong.

use hsmux_suite::Setup;

#[test]
fn bare() {
    generated(Setup::Bare, 1);
}

#[test]
fn a_pool_of_one() {
    generated(Setup::Daemon, 1);
}

#[test]
fn a_pool_of_three() {
    generated(Setup::Daemon, 3);
}

fn generated(setup: Setup, members: usize) {
    let run = crate::in_turns("generated.py", setup, members);
    // Also of several members, which have unwrapped it.
    run.says(
        "aes: local 0x1 mechanism 0x1080 always sensitive 0x1 never extractable 0x1 length 0x20",
    );
    run.says("open aes: local 0x1 mechanism 0x1080 always sensitive 0x0 never extractable 0x0 length 0x10");
    run.says("created aes: local 0x0 length 0x18");
    run.says("private ec: local 0x1 mechanism 0x1040 always sensitive 0x1 never extractable 0x1");
    run.says("public ec: local 0x1 mechanism 0x1040");
    run.says("private 1, public 0");
    run.says("private 0, public 1");
    // A pool knows a private key by its public half, which an EC key alone does not tell.
    run.says(match setup {
        Setup::Bare => "private ec alone: made",
        _ => "private ec alone: 0x",
    });
    // Several members know a secret key by its CKA_ID and value.
    run.says(match members {
        1 => "copy under the same id: True, a token object: 1",
        _ => "copy under the same id: 0x1b",
    });
    run.says("copy under the other id: True, a token object: 1");
    run.says("all destroyed");
}
