//! DES, DSA, DH and HMAC with MD5, where members have them.

use hsmux_suite::Setup;

#[test]
fn bare() {
    works(Setup::Bare, 1);
}

#[test]
fn a_pool_of_one() {
    works(Setup::Daemon, 1);
}

#[test]
fn a_pool_of_three() {
    works(Setup::Daemon, 3);
}

#[test]
fn embedded() {
    works(Setup::Embedded, 1);
}

fn works(setup: Setup, members: usize) {
    let run = crate::in_turns("legacy.py", setup, members);
    for name in ["dsa", "imported", "dh", "des2", "des3", "md5"] {
        for kept in ["session", "token"] {
            run.says(&format!("{name} {kept}: good"));
        }
    }
    // OpenSSL 3 of Debian has single DES in a provider that is not loaded: SoftHSM makes such keys and cannot use them.
    run.says("des: made");
}
