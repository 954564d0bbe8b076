//! A rotation that is broken off anywhere is continued, and no wrong PIN is tried.

use crate::pin_rotate::{PinChanger, PinHolder, are_shared, remaining, rotate};
use hsmux_config::PinSource;
use hsmux_token::fake::write_secret;
use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, Result, Secret};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Tokens with their PINs; `fails` says after which change the process "dies".
#[derive(Default)]
struct Tokens {
    pins: Mutex<BTreeMap<String, Vec<u8>>>,
    wrong: Mutex<usize>,
    fails: Mutex<Option<(String, bool)>>,
}

impl PinChanger for Tokens {
    fn change_pin(&self, member: &str, old: &Secret, new: &Secret) -> Result<()> {
        let mut pins = self.pins.lock();
        let pin = pins.get_mut(member).unwrap();
        let failing = self.fails.lock().take_if(|(name, _)| name == member);
        if failing.as_ref().is_some_and(|(_, done)| !done) {
            return Err(Error::lost("unplugged"));
        }
        if pin == new.expose() {
            return Ok(());
        }
        if pin != old.expose() {
            *self.wrong.lock() += 1;
            return Err(Error::vendor(
                "C_SetPIN",
                hsmux_token::ck::CKR_PIN_INCORRECT,
            ));
        }
        *pin = new.expose().to_vec();
        match failing {
            Some(_) => Err(Error::lost("died after the change")),
            None => Ok(()),
        }
    }
}

fn holder(folder: &Path, member: &str, file: &str) -> PinHolder {
    PinHolder {
        member: member.to_owned(),
        source: PinSource::File(folder.join(file)),
        length: 12,
    }
}

/// hsm1 has a PIN alone; hsm2 and hsm3 share one.
fn members(folder: &Path) -> (Tokens, Vec<PinHolder>) {
    write_secret(&folder.join("one.pin"), "1111\n");
    write_secret(&folder.join("two.pin"), "2222\n");
    let tokens = Tokens::default();
    for (member, pin) in [("hsm1", "1111"), ("hsm2", "2222"), ("hsm3", "2222")] {
        tokens.pins.lock().insert(member.to_owned(), pin.into());
    }
    let holders = vec![
        holder(folder, "hsm1", "one.pin"),
        holder(folder, "hsm2", "two.pin"),
        holder(folder, "hsm3", "two.pin"),
    ];
    (tokens, holders)
}

fn in_file(path: PathBuf) -> Vec<u8> {
    PinSource::File(path).read().unwrap().expose().to_vec()
}

fn files_are_right(folder: &Path, tokens: &Tokens) {
    let pins = tokens.pins.lock();
    for (member, file) in [
        ("hsm1", "one.pin"),
        ("hsm2", "two.pin"),
        ("hsm3", "two.pin"),
    ] {
        assert_eq!(pins[member], in_file(folder.join(file)), "{member}");
        assert_eq!(pins[member].len(), 12);
    }
    assert_ne!(pins["hsm1"], pins["hsm2"]);
    assert_eq!(*tokens.wrong.lock(), 0);
    assert!(!folder.join("one.pin.next").exists());
    assert!(!folder.join("two.pin.next").exists());
}

#[test]
fn every_member_gets_a_new_pin_in_its_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (tokens, holders) = members(folder.path());
    let one = folder.path().join("one.pin");
    std::fs::set_permissions(&one, PermissionsExt::from_mode(0o400)).unwrap();
    let rotated = rotate(&holders, &tokens, &|_| ()).unwrap();
    assert_eq!(rotated.len(), 2, "by file");
    assert!(rotated.iter().all(|file| file.result.is_ok()));
    files_are_right(folder.path(), &tokens);
    let mode = std::fs::metadata(&one).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o400, "as before");
}

#[test]
fn what_was_broken_off_is_continued() {
    for member in ["hsm1", "hsm2", "hsm3"] {
        for after_the_change in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let (tokens, holders) = members(folder.path());
            *tokens.fails.lock() = Some((member.to_owned(), after_the_change));
            let rotated = rotate(&holders, &tokens, &|_| ()).unwrap();
            let broken: Vec<_> = rotated.iter().filter(|f| f.result.is_err()).collect();
            assert_eq!(broken.len(), 1);
            assert!(broken[0].members.contains(&member.to_owned()));
            // The new PIN is on the disk, whatever the token has.
            let next = broken[0].file.with_extension("pin.next");
            assert_eq!(in_file(next).len(), 12);
            rotate(&holders, &tokens, &|_| ()).unwrap();
            files_are_right(folder.path(), &tokens);
        }
    }
}

#[test]
fn a_pin_that_is_not_in_a_file_is_refused_before_any_token_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (tokens, mut holders) = members(folder.path());
    holders[2].source = PinSource::Env("HSM3_PIN".into());
    let error = rotate(&holders, &tokens, &|_| ()).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("hsm3"), "{error}");
    assert_eq!(tokens.pins.lock()["hsm1"], b"1111");
    assert!(!folder.path().join("one.pin.next").exists());
}

/// New PINs that a run has left behind, by how far it had come: which of `one.pin` and `two.pin` the next one changes.
#[test]
fn what_is_left_to_do_is_seen_by_what_was_left_behind() {
    for (found, left) in [
        // No token was told: it begins anew.
        (&[][..], &["hsm1", "hsm2", "hsm3"][..]),
        (&["one.pin.draft"], &["hsm1", "hsm2", "hsm3"]),
        // All were about to be told.
        (
            &["one.pin.next", "two.pin.draft"],
            &["hsm1", "hsm2", "hsm3"],
        ),
        (&["one.pin.next", "two.pin.next"], &["hsm1", "hsm2", "hsm3"]),
        // The other one is through.
        (&["one.pin.next"], &["hsm1"]),
        (&["two.pin.next"], &["hsm2", "hsm3"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (tokens, holders) = members(folder.path());
        for name in found {
            write_secret(&folder.path().join(name), "from-earlier\n");
        }
        let (todo, through) = remaining(holders, |holder| Some(&holder.source));
        let names: Vec<_> = todo.iter().map(|holder| &*holder.member).collect();
        assert_eq!(names, left, "{found:?}");
        assert_eq!(todo.len() + through.len(), 3);
        rotate(&todo, &tokens, &|_| ()).unwrap();
        let left_behind = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left_behind, 2, "the PINs alone: {found:?}");
        for holder in &through {
            assert_eq!(tokens.pins.lock()[&holder.member].len(), 4, "{found:?}");
        }
        // A PIN that a token may have is used; a draft never is.
        let pins = tokens.pins.lock();
        for (member, name) in [("hsm1", "one"), ("hsm2", "two")] {
            let next = found.contains(&&*format!("{name}.pin.next"));
            assert_eq!(pins[member] == b"from-earlier", next, "{found:?}");
        }
    }
}

#[test]
fn one_file_by_two_names_is_one_pin() {
    let folder = tempfile::tempdir().unwrap();
    members(folder.path());
    let file = |name: &str| PinSource::File(folder.path().join(name));
    std::os::unix::fs::symlink("one.pin", folder.path().join("other.pin")).unwrap();
    assert!(are_shared(&file("one.pin"), &file("other.pin")));
    assert!(!are_shared(&file("one.pin"), &file("two.pin")));
    assert!(!are_shared(
        &PinSource::Env("A".into()),
        &PinSource::Env("A".into())
    ));
}
