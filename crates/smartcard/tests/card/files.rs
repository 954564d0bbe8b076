use hsmux_smartcard::{FileId, FileKind, KeyReference, Status};

use super::script::{card, done};

const READ: &str = "00B1CE01 000004";

#[test]
fn a_file_is_read_until_it_ends() {
    let part = "AB".repeat(1024);
    let read = |offset| format!("{READ} 5402{offset} 0400");
    for (answer, len) in [
        ("9000", 1024),
        ("6B00", 1024),
        ("0102 6282", 1026),
        ("01 9000", 1025),
    ] {
        let full = format!("{part} 9000");
        let mut card = card(&[(&read("0000"), &full), (&read("0400"), answer)]);
        let content = card.read_file(FileId(0xCE01)).unwrap();
        assert_eq!(content.len(), len);
        done(card);
    }
}

#[test]
fn a_file_that_is_not_there() {
    let read = format!("{READ} 54020000 0400");
    let mut card = card(&[(&read, "6A82"), (&read, "6A82"), (&read, "6B00")]);
    let file = KeyReference(1).file(FileKind::Certificate);
    assert_eq!(card.read_file_if_any(file).unwrap(), None);
    let error = card.read_file(file).unwrap_err();
    assert_eq!(error.status(), Some(Status::FILE_NOT_FOUND));
    assert_eq!(
        card.read_file(file).unwrap_err().status(),
        Some(Status::WRONG_OFFSET)
    );
    done(card);
}

#[test]
fn a_file_is_written_in_parts() {
    let content = vec![0x5A; 2000];
    // 1232 bytes: 4 header, 3 Lc, 2 that a Le would take, 4 for 54, 4 for 53; 1215 remain.
    let first = format!("00D7C401 0004C7 54020000 538204BF {}", "5A".repeat(1215));
    let second = format!("00D7C401 000319 540204BF 53820311 {}", "5A".repeat(785));
    let mut card = card(&[
        (&first, "9000"),
        (&second, "9000"),
        ("00D7C401 06 54020000 5300", "9000"),
        ("00E40200 02 C401", "9000"),
        ("00D7C401 07 54020000 5301AA", "6A84"),
    ]);
    let file = FileId(0xC401);
    card.write_file(file, &content).unwrap();
    card.write_file(file, &[]).unwrap();
    let error = card.replace_file(file, &[0xAA]).unwrap_err();
    assert_eq!(error.status(), Some(Status::NOT_ENOUGH_MEMORY));
    assert!(card.write_file(file, &vec![0; 70_000]).is_err());
    done(card);
}

#[test]
fn files_are_listed_selected_and_deleted() {
    let mut card = card(&[
        ("80580000 000000", "CC00 CC01 C401 CE01 2F02 9000"),
        ("80580000 000000", "CC 9000"),
        ("00A40000 02 C401 00", "6204 9000"),
        ("00A40000 02 C401 00", "6A82"),
        ("00E40200 02 CC01", "9000"),
        ("00E40200 02 CC01", "6A82"),
        ("00E40200 02 CC01", "6982"),
    ]);
    let files = card.enumerate().unwrap();
    assert_eq!(files[1], KeyReference(1).file(FileKind::Key));
    assert_eq!(files[2].kind(), Some(FileKind::KeyDescription));
    assert_eq!(files[4], FileId::DEVICE_CERTIFICATES);
    assert_eq!(files[4].kind(), None);
    assert!(card.enumerate().is_err());
    assert!(card.select_file(FileId(0xC401)).unwrap());
    assert!(!card.select_file(FileId(0xC401)).unwrap());
    let key = KeyReference(1).file(FileKind::Key);
    assert!(card.delete_file(key).unwrap());
    assert!(!card.delete_file(key).unwrap());
    assert_eq!(
        card.delete_file(key).unwrap_err().status(),
        Some(Status::NOT_LOGGED_IN)
    );
    done(card);
}
