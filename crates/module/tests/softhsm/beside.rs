//! A second copy of a module in the process.

use std::collections::HashSet;
use std::fs;

use hsmux_module::{ModuleToken, Options};
use hsmux_token::ck::*;
use hsmux_token::{Kind, Mechanism, Verb};

use crate::fixture::{Run, ec_pair, options, token};
use crate::keys::with;

/// Recognises the name of a copy of SoftHSM's module in /proc; the module's folder may be a link.
fn is_copy(name: &str) -> bool {
    name.contains("/memfd:/usr/lib/") && name.contains("/libsofthsm2.so")
}

/// The number of mapped copies, and of open ones.
fn copies() -> (usize, usize) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| is_copy(line));
    // The fifth word is the inode (proc_pid_maps(5)).
    let mapped: HashSet<_> = mapped.map(|line| line.split_whitespace().nth(4)).collect();
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = open.filter_map(|file| fs::read_link(file.path()).ok());
    let open = open.filter(|target| is_copy(&target.to_string_lossy()));
    (mapped.len(), open.count())
}

#[test]
fn a_copy_of_a_module_serves_on_its_own_and_leaves_nothing() {
    let first = token("beside");
    let key = first.made(ec_pair(1)).pop().unwrap().object.id;
    let sign = with(Verb::Sign, key, Mechanism::plain(CKM_ECDSA), &[7; 32]);
    let signs = |token: &ModuleToken| assert_eq!(token.bytes(sign.clone()).unwrap().len(), 64);
    let beside = || ModuleToken::open_beside(options("beside")).unwrap();

    let mut serving = beside();
    signs(&serving);
    signs(&first);
    // If both were the same module, this would end the sessions of both.
    drop(first);
    for _ in 0..5 {
        signs(&serving);
        serving = beside();
        assert_eq!(copies(), (1, 1));
    }
    let by_another = serving.made(ec_pair(2)).pop().unwrap().object.id;
    let first = ModuleToken::open(options("beside")).unwrap();
    let sign = with(
        Verb::Sign,
        by_another,
        Mechanism::plain(CKM_ECDSA),
        &[7; 32],
    );
    first.bytes(sign).unwrap();
    drop(serving);
    assert_eq!(copies(), (0, 0));
    signs(&first);
}

#[test]
fn a_module_that_is_not_there_is_named() {
    let options = Options {
        module: "/nowhere/module.so".into(),
        ..options("beside-nowhere")
    };
    let error = ModuleToken::open_beside(options).map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::Environment);
    let text = error.to_string();
    assert!(
        text.contains("/nowhere/module.so: cannot be loaded: No such file"),
        "{text}"
    );
}
