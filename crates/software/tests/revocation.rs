//! Lists of revoked certificates, made by openssl: a root, an authority below it, and a client's certificate.

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::{openssl, path};
use hsmux_software::revocation::{Revocation, RevocationError};

/// Files of a root, of an authority `mid` and of a client `leaf`.
struct Pki(tempfile::TempDir);

impl Pki {
    fn new() -> Self {
        let pki = Self(tempfile::tempdir().expect("a folder"));
        for name in ["root", "mid"] {
            let config = format!(
                "[ca]\ndefault_ca = here\n[here]\ndatabase = {0}\nrand_serial = yes\ndefault_md = sha256\n",
                path(&pki.file(&format!("{name}.index")))
            );
            std::fs::write(pki.file(&format!("{name}.cnf")), config).expect("a file");
            std::fs::write(pki.file(&format!("{name}.index")), "").expect("a file");
        }
        pki.request("root", &["-x509", "-days", "30"]);
        pki.issue("mid", "root", "basicConstraints=critical,CA:TRUE");
        pki.issue("leaf", "mid", "basicConstraints=CA:FALSE");
        pki
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn request(&self, name: &str, more: &[&str]) {
        self.request_with(&EC, name, more);
    }

    /// With a key by these arguments of `openssl req`.
    fn request_with(&self, key_of: &[&str], name: &str, more: &[&str]) {
        let (key, out) = (
            self.file(&format!("{name}.key")),
            self.file(&format!("{name}.pem")),
        );
        let subject = format!("/CN={name}");
        let mut all = vec!["req", "-nodes"];
        all.extend(key_of);
        all.extend(["-keyout", path(&key), "-out", path(&out), "-subj", &subject]);
        all.extend(more);
        openssl(&all, &[]);
    }

    /// A new certificate `name`, with a new key, by another authority.
    fn issue(&self, name: &str, by: &str, extension: &str) {
        self.issue_with(&EC, name, by, extension, &[]);
    }

    /// The same with a key by these arguments of `openssl req`, and more arguments of `openssl x509`.
    fn issue_with(&self, key_of: &[&str], name: &str, by: &str, extension: &str, more: &[&str]) {
        self.request_with(key_of, name, &["-addext", extension]);
        let (own, ca, key) = (
            self.file(&format!("{name}.pem")),
            self.file(&format!("{by}.pem")),
            self.file(&format!("{by}.key")),
        );
        let mut all = vec![
            "x509",
            "-req",
            "-in",
            path(&own),
            "-CA",
            path(&ca),
            "-CAkey",
            path(&key),
        ];
        all.extend([
            "-copy_extensions",
            "copy",
            "-days",
            "30",
            "-out",
            path(&own),
        ]);
        all.extend(more);
        openssl(&all, &[]);
    }

    fn ca(&self, name: &str, more: &[&str]) {
        let (config, ca, key) = (
            self.file(&format!("{name}.cnf")),
            self.file(&format!("{name}.pem")),
            self.file(&format!("{name}.key")),
        );
        let mut all = vec![
            "ca",
            "-config",
            path(&config),
            "-cert",
            path(&ca),
            "-keyfile",
            path(&key),
        ];
        all.extend(more);
        openssl(&all, &[]);
    }

    fn revoke(&self, by: &str, name: &str) {
        self.ca(by, &["-revoke", path(&self.file(&format!("{name}.pem")))]);
    }

    /// A list of an authority that is good in this year, made at a time of it.
    fn list(&self, by: &str, file: &str, since: &str) -> PathBuf {
        let file = self.file(file);
        let more = [
            "-crl_lastupdate",
            since,
            "-crl_nextupdate",
            "20990101000000Z",
        ];
        self.ca(
            by,
            &[
                "-gencrl",
                "-out",
                path(&file),
                more[0],
                more[1],
                more[2],
                more[3],
            ],
        );
        file
    }

    fn der(&self, name: &str) -> Vec<u8> {
        openssl(
            &[
                "x509",
                "-in",
                path(&self.file(&format!("{name}.pem"))),
                "-outform",
                "DER",
            ],
            &[],
        )
    }

    /// Reads lists beside a file of these authorities.
    fn read(&self, lists: &[PathBuf], authorities: &[&str]) -> Revocation {
        let authorities: Vec<_> = authorities.iter().map(|name| self.der(name)).collect();
        let lists = lists.iter().map(Path::new);
        Revocation::read(lists, &authorities).expect("good lists")
    }
}

const EC: [&str; 4] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
const RSA: [&str; 2] = ["-newkey", "rsa:2048"];

const EARLY: &str = "20260101000000Z";
const LATE: &str = "20260201000000Z";

fn now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970")
}

fn is_revoked(judged: &Result<(), RevocationError>) -> bool {
    matches!(judged, Err(RevocationError::Revoked { .. }))
}

#[test]
fn a_file_without_end_is_not_read() {
    let wrong = Revocation::read([Path::new("/dev/zero")], &[]).expect_err("an error");
    assert!(wrong.why.contains("longer than 64 MiB"), "{}", wrong.why);
}

/// The server knows the authority from its own file; its own certificate is on the root's list.
#[test]
fn a_revoked_authority_that_the_client_does_not_send_is_found() {
    let pki = Pki::new();
    let of_mid = pki.list("mid", "mid.crl", EARLY);
    let (leaf, both) = (pki.der("leaf"), ["root", "mid"]);
    let before = pki.read(
        &[pki.list("root", "root.crl", EARLY), of_mid.clone()],
        &both,
    );
    assert_eq!(before.judge([&leaf[..]], now()), Ok(()));
    pki.revoke("root", "mid");
    let after = pki.read(&[pki.list("root", "root.crl", LATE), of_mid], &both);
    assert!(is_revoked(&after.judge([&leaf[..]], now())));
    assert!(is_revoked(
        &after.judge([&leaf[..], &pki.der("mid")], now())
    ));
}

/// Which of its authorities has signed such a certificate is not verified: all of the name have to be good.
#[test]
fn a_revoked_authority_that_signs_by_rsa_pss_is_found() {
    let pki = Pki::new();
    let authority = "basicConstraints=critical,CA:TRUE";
    pki.issue_with(&RSA, "mid", "root", authority, &[]);
    let padding = ["-sigopt", "rsa_padding_mode:pss"];
    pki.issue_with(&EC, "leaf", "mid", "basicConstraints=CA:FALSE", &padding);
    let leaf = pki.der("leaf");
    // id-RSASSA-PSS (RFC 8017, appendix A.2.3)
    let oid = [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x0A];
    assert!(leaf.windows(oid.len()).any(|part| part == oid));
    let (of_mid, both) = (pki.list("mid", "mid.crl", EARLY), ["root", "mid"]);
    let lists = [pki.list("root", "root.crl", EARLY), of_mid.clone()];
    assert_eq!(pki.read(&lists, &both).judge([&leaf[..]], now()), Ok(()));
    pki.revoke("root", "mid");
    let lists = [pki.list("root", "root.crl", LATE), of_mid];
    let lists = pki.read(&lists, &both);
    for chain in [&[&leaf[..]][..], &[&leaf, &pki.der("mid")]] {
        assert!(is_revoked(&lists.judge(chain.iter().copied(), now())));
    }
}

#[test]
fn a_chain_without_end_is_refused() {
    let pki = Pki::new();
    let lists = pki.read(&[pki.list("mid", "mid.crl", EARLY)], &["root", "mid"]);
    let (leaf, mid) = (pki.der("leaf"), pki.der("mid"));
    let chain = |others| std::iter::once(&leaf[..]).chain(std::iter::repeat_n(&mid[..], others));
    assert_eq!(lists.judge(chain(15), now()), Ok(()));
    let refused = lists.judge(chain(16), now());
    assert!(matches!(refused, Err(RevocationError::Unreadable(_))));
}

/// Anybody can make a certificate with the authority's name.
#[test]
fn a_forged_authority_does_not_hide_the_revoked_one() {
    let pki = Pki::new();
    pki.revoke("root", "mid");
    let lists = [
        pki.list("root", "root.crl", EARLY),
        pki.list("mid", "mid.crl", EARLY),
    ];
    let lists = pki.read(&lists, &["root", "mid"]);
    let (leaf, mid) = (pki.der("leaf"), pki.der("mid"));
    pki.request("mid", &["-x509", "-days", "30"]);
    let forged = pki.der("mid");
    for chain in [
        &[&leaf[..]][..],
        &[&leaf, &mid],
        &[&leaf, &forged],
        &[&leaf, &forged, &mid],
    ] {
        assert!(is_revoked(&lists.judge(chain.iter().copied(), now())));
    }
}

/// An authority that was revoked and has a new certificate of the same name does not harm what the new one signs.
#[test]
fn an_authority_is_known_by_its_key_and_not_by_its_name() {
    let pki = Pki::new();
    pki.revoke("root", "mid");
    for end in ["pem", "key"] {
        let (from, to) = (
            pki.file(&format!("mid.{end}")),
            pki.file(&format!("old.{end}")),
        );
        std::fs::rename(from, to).expect("a file");
    }
    let old = pki.der("leaf");
    pki.issue("mid", "root", "basicConstraints=critical,CA:TRUE");
    pki.issue("leaf", "mid", "basicConstraints=CA:FALSE");
    let lists = [
        pki.list("root", "root.crl", EARLY),
        pki.list("mid", "mid.crl", EARLY),
    ];
    let lists = pki.read(&lists, &["root", "old", "mid"]);
    assert_eq!(lists.judge([&pki.der("leaf")[..]], now()), Ok(()));
    assert!(is_revoked(&lists.judge([&old[..]], now())));
}

#[test]
fn an_older_list_does_not_bring_a_revoked_certificate_back() {
    let pki = Pki::new();
    let leaf = pki.der("leaf");
    let old = pki.list("mid", "old.crl", EARLY);
    pki.revoke("mid", "leaf");
    let in_use = pki.read(&[pki.list("mid", "new.crl", LATE)], &["mid"]);
    assert!(is_revoked(&in_use.judge([&leaf[..]], now())));

    let mut again = pki.read(std::slice::from_ref(&old), &["mid"]);
    assert_eq!(again.judge([&leaf[..]], now()), Ok(()));
    let outdated = again.keep_newer(&in_use);
    assert_eq!(outdated.len(), 1);
    assert!(is_revoked(&again.judge([&leaf[..]], now())));

    // The same list again, and a newer one, are taken.
    let mut same = pki.read(&[pki.file("new.crl")], &["mid"]);
    assert!(same.keep_newer(&in_use).is_empty());
    let mut newer = pki.read(&[pki.list("mid", "newer.crl", "20260301000000Z")], &["mid"]);
    assert!(newer.keep_newer(&in_use).is_empty());
    // A list that is left out is no news either.
    let mut without = pki.read(&[], &["mid"]);
    assert_eq!(without.keep_newer(&in_use).len(), 1);
    assert!(is_revoked(&without.judge([&leaf[..]], now())));
    // An authority that is no longer named takes its lists along.
    let mut other = pki.read(&[pki.list("root", "root.crl", EARLY)], &["root"]);
    assert!(other.keep_newer(&in_use).is_empty());
    assert!(matches!(
        other.judge([&leaf[..]], now()),
        Err(RevocationError::NoList(_))
    ));
}
