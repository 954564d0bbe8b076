use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;

use hsmux_config::Identity;

use super::*;
use crate::certificate::PeerCertificate;
use crate::identity::TlsIdentity;
use crate::identity::revoked;

/// An authority whose key is a file.
fn authority(folder: &Path, name: &str, life: Duration) -> Result<Authority> {
    Authority::init(folder, name, life, None)
}

fn wanted<'a>(name: &'a str, addresses: &'a [String], life: Duration) -> EnrollmentRequest<'a> {
    EnrollmentRequest {
        name,
        addresses,
        life,
        request: None,
    }
}

const DAY: Duration = Duration::from_secs(86_400);

fn identity(folder: &Path) -> Identity {
    Identity {
        certificate: folder.join("node.pem"),
        key: folder.join("node.key"),
        ca: folder.join(CERTIFICATE),
        revoked: Some(folder.join(REVOKED)),
    }
}

#[test]
fn a_host_gets_all_that_tls_needs() {
    let folder = tempfile::tempdir().unwrap();
    let ca = authority(&folder.path().join("ca"), "a cluster", 10 * DAY).unwrap();
    let into = folder.path().join("web1");
    let enrolled = ca
        .enroll(&wanted("Web1", &["10.0.0.1".into()], DAY), &into)
        .unwrap();
    let loaded = TlsIdentity::read(&identity(&enrolled.folder)).unwrap();
    loaded.server().unwrap();
    loaded.client().unwrap();
    let PeerCertificate { name, serial, .. } = loaded.own;
    assert_eq!((name.as_str(), &serial), ("web1", &enrolled.issued.serial));
    let mode = |file: &str| {
        let of = std::fs::metadata(folder.path().join(file)).unwrap();
        of.permissions().mode() & 0o777
    };
    assert_eq!((mode("web1/node.key"), mode("ca/ca.key")), (0o600, 0o600));
    assert_eq!((mode("web1"), mode("ca")), (0o700, 0o700));
}

#[test]
fn nothing_is_written_over_and_nothing_half() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("ca");
    let ca = authority(&at, "a cluster", DAY).unwrap();
    assert!(authority(&at, "another", DAY).is_err());
    let into = folder.path().join("web1");
    std::fs::create_dir(&into).unwrap();
    assert!(ca.enroll(&wanted("web1", &[], DAY), &into).is_err());
    assert!(
        ca.enroll(&wanted("no name", &[], DAY), &folder.path().join("x"))
            .is_err()
    );
    assert!(
        ca.enroll(
            &wanted("web1", &[], Duration::ZERO),
            &folder.path().join("x")
        )
        .is_err()
    );
    assert!(ca.issued().unwrap().is_empty());
    let names = std::fs::read_dir(folder.path()).unwrap();
    let names: HashSet<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, HashSet::from(["ca".into(), "web1".into()]));
    assert!(Authority::open(&into).is_err());
}

#[test]
fn an_authority_that_has_expired_makes_no_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let ca = authority(&folder.path().join("ca"), "a cluster", DAY).unwrap();
    let file = folder.path().join("ca").join(ISSUED);
    let mut ledger = ca.ledger().unwrap();
    ledger.until = now() - 1;
    std::fs::write(&file, ledger.written().unwrap()).unwrap();
    let into = folder.path().join("web1");
    let enrolled = ca.enroll(&wanted("web1", &[], DAY), &into);
    let error = enrolled.map(drop).unwrap_err().to_string();
    assert!(
        error.contains("ca.pem") && error.contains("it has expired"),
        "{error}"
    );
    assert!(!into.exists() && ca.issued().unwrap().is_empty());
}

#[test]
fn a_key_that_everybody_reads_is_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let ca = authority(&folder.path().join("ca"), "a cluster", DAY).unwrap();
    let enrolled = ca
        .enroll(&wanted("web1", &[], DAY), &folder.path().join("web1"))
        .unwrap();
    let identity = identity(&enrolled.folder);
    TlsIdentity::read(&identity).unwrap();
    std::fs::set_permissions(&identity.key, PermissionsExt::from_mode(0o644)).unwrap();
    let error = TlsIdentity::read(&identity)
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("node.key") && error.contains("chmod 600"),
        "{error}"
    );
    let address = ca.enroll(&wanted("10.0.0.2", &[], DAY), &folder.path().join("other"));
    assert!(
        address
            .map(drop)
            .unwrap_err()
            .to_string()
            .contains("an address")
    );
}

#[test]
fn lists_of_several_authorities_are_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    let mut serials = HashSet::new();
    for name in ["one", "other"] {
        let ca = authority(&folder.path().join(name), name, DAY).unwrap();
        let into = folder.path().join(format!("web-{name}"));
        serials.insert(
            ca.enroll(&wanted("web1", &[], DAY), &into)
                .unwrap()
                .issued
                .serial,
        );
        text += &std::fs::read_to_string(ca.revoke("web1").unwrap().list).unwrap();
    }
    let both = folder.path().join("both.pem");
    std::fs::write(&both, text).unwrap();
    assert_eq!(revoked(&both).unwrap(), serials);
}

#[test]
fn authorities_of_one_name_are_not_believed_together() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = |at: &str, name: &str| {
        authority(&folder.path().join(at), name, DAY).unwrap();
        std::fs::read_to_string(folder.path().join(at).join(CERTIFICATE)).unwrap()
    };
    let own = certificate("ca", "a cluster");
    let ca = Authority::open(&folder.path().join("ca")).unwrap();
    let into = folder.path().join("web1");
    let mut host = identity(&ca.enroll(&wanted("web1", &[], DAY), &into).unwrap().folder);
    let believing = |host: &Identity, more: &str| {
        std::fs::write(&host.ca, format!("{own}{more}")).unwrap();
        TlsIdentity::read(host).map(drop)
    };
    believing(&host, &certificate("other", &new_name().unwrap())).unwrap();
    believing(&host, &own).unwrap();
    let twin = certificate("twin", "a cluster");
    let error = believing(&host, &twin).unwrap_err().to_string();
    assert!(error.contains("two authorities of one name"), "{error}");
    // Without lists their keys tell them apart.
    host.revoked = None;
    believing(&host, &twin).unwrap();
    assert_ne!(new_name().unwrap(), new_name().unwrap());
}

#[test]
fn a_file_without_a_list_takes_nobody_back_among_the_believed() {
    let folder = tempfile::tempdir().unwrap();
    let ca = authority(&folder.path().join("ca"), "a cluster", DAY).unwrap();
    let into = folder.path().join("web1");
    let enrolled = ca.enroll(&wanted("web1", &[], DAY), &into).unwrap();
    let list = enrolled.folder.join(REVOKED);
    let certificate = std::fs::read(enrolled.folder.join(CERTIFICATE)).unwrap();
    for nothing in [b"".as_slice(), b"\x30\x03\x02\x01\x01", &certificate] {
        std::fs::write(&list, nothing).unwrap();
        for error in [
            revoked(&list).map(drop).unwrap_err(),
            TlsIdentity::read(&identity(&enrolled.folder))
                .map(drop)
                .unwrap_err(),
        ] {
            let told = error.to_string();
            assert!(told.contains("there is no list of revoked"), "{told}");
        }
    }
    // An empty list is a list.
    std::fs::copy(folder.path().join("ca").join(REVOKED), &list).unwrap();
    assert!(revoked(&list).unwrap().is_empty());
    TlsIdentity::read(&identity(&enrolled.folder)).unwrap();
}

#[test]
fn what_is_revoked_is_on_the_list_and_stays_there() {
    let folder = tempfile::tempdir().unwrap();
    let ca = authority(&folder.path().join("ca"), "a cluster", DAY).unwrap();
    let enroll = |name: &str, into: &str| {
        let into = folder.path().join(into);
        ca.enroll(&wanted(name, &[], 10 * DAY), &into)
            .unwrap()
            .issued
    };
    let (first, second, other) = (
        enroll("web1", "a"),
        enroll("web1", "b"),
        enroll("web2", "c"),
    );
    // It ends at the latest with its authority.
    assert!(first.until <= now() + DAY.as_secs());
    let one = ca.revoke(&first.serial.to_uppercase()).unwrap();
    assert_eq!(one.certificates.len(), 1);
    let listed = revoked(&one.list).unwrap();
    assert_eq!(listed, HashSet::from([first.serial.clone()]));
    assert_eq!(
        ca.revoke("web1").unwrap().certificates[0].serial,
        second.serial
    );
    assert!(ca.revoke("web1").unwrap().certificates.is_empty());
    assert!(ca.revoke("web3").is_err());
    let listed = revoked(&one.list).unwrap();
    assert_eq!(listed, HashSet::from([first.serial, second.serial]));
    assert!(!listed.contains(&other.serial));
    assert_eq!(
        ca.issued()
            .unwrap()
            .iter()
            .filter(|i| i.revoked.is_some())
            .count(),
        2
    );
}

#[test]
fn an_authority_from_a_backup_goes_on_with_greater_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("ca");
    let ca = authority(&at, "a cluster", DAY).unwrap();
    for name in ["web1", "web2"] {
        ca.enroll(&wanted(name, &[], DAY), &folder.path().join(name))
            .unwrap();
    }
    let backup = std::fs::read(at.join(ISSUED)).unwrap();
    let revoke = |name: &str| {
        ca.revoke(name).unwrap();
        ca.ledger().unwrap().lists
    };
    let (first, second) = (revoke("web1"), revoke("web1"));
    assert!(first < second, "{first} {second}");
    std::fs::write(at.join(ISSUED), backup).unwrap();
    let before = now();
    let number = revoke("web2");
    assert!(number >= before, "{number}, made at {before}");
}

#[test]
fn a_host_makes_its_own_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let ca = authority(&path("ca"), "a cluster", DAY).unwrap();
    let host = path("web1");
    request("Web1", &host).unwrap();
    assert!(request("web1", &host).is_err(), "nothing is written over");
    let text = std::fs::read_to_string(host.join("node.csr")).unwrap();
    let order = |request| EnrollmentRequest {
        request: Some(request),
        ..wanted("web1", &[], DAY)
    };
    let enrolled = ca.enroll(&order(&text), &path("signed")).unwrap();
    assert!(!enrolled.folder.join("node.key").exists());
    for file in ["node.pem", CERTIFICATE, REVOKED] {
        std::fs::copy(enrolled.folder.join(file), host.join(file)).unwrap();
    }
    // The certificate has the key that never left the host.
    TlsIdentity::read(&identity(&host))
        .unwrap()
        .client()
        .unwrap();
    let other = EnrollmentRequest {
        name: "web2",
        ..order(&text)
    };
    let error = ca.enroll(&other, &path("x")).map(drop).unwrap_err();
    assert!(
        error.to_string().contains("is of \"web1\", and not"),
        "{error}"
    );
    // The key of another host, with a wrong signature.
    let mut lines: Vec<_> = text.lines().collect();
    lines.swap(2, 3);
    for bad in [&*lines.join("\n"), "", &text[..200]] {
        assert!(ca.enroll(&order(bad), &path("x")).is_err());
    }
    assert_eq!(ca.issued().unwrap().len(), 1);
}
