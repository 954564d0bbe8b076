use hsmux_smartcard::{
    Card, CardChannel, ChannelError, FileId, FileKind, KeyReference, StatusWord,
};

use super::script::{Parrot, card, done};

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
    assert_eq!(error.status(), Some(StatusWord::FILE_NOT_FOUND));
    assert_eq!(
        card.read_file(file).unwrap_err().status(),
        Some(StatusWord::WRONG_OFFSET)
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
    assert_eq!(error.status(), Some(StatusWord::NOT_ENOUGH_MEMORY));
    assert!(card.write_file(file, &vec![0; 70_000]).is_err());
    done(card);
}

/// Answers with another part of a file each time, and counts them.
struct Endless(usize);

impl CardChannel for Endless {
    fn transmit(&mut self, _command: &[u8]) -> Result<Vec<u8>, ChannelError> {
        self.0 += 1;
        assert!(self.0 < 1000, "too many commands");
        Ok([&[0xAB; 1024][..], &[0x90, 0x00]].concat())
    }

    fn name(&self) -> &'static str {
        "endless"
    }
}

#[test]
fn a_file_has_64_kib_at_most() {
    let file = FileId(0xCE01);
    let mut endless = Card::new(Endless(0));
    let error = endless.read_file(file).unwrap_err().to_string();
    assert!(error.contains("more than a file can hold"), "{error}");
    assert_eq!(endless.into_channel().0, 64);
    let mut card = Card::new(Parrot(vec![0x90, 0x00]));
    card.write_file(file, &vec![0; 65_536]).unwrap();
    let error = card.write_file(file, &vec![0; 65_537]).unwrap_err();
    assert!(
        error.to_string().contains("do not fit into a file"),
        "{error}"
    );
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
        Some(StatusWord::NOT_LOGGED_IN)
    );
    done(card);
}
