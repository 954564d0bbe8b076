//! Input from a SmartCard-HSM, or from files that were made with one.

use std::sync::LazyLock;

use hsmux_smartcard::apdu::{CommandApdu, ResponseApdu};
use hsmux_smartcard::cvc::{Certificate, CvcRequest, public_key_of};
use hsmux_smartcard::dkek::custodian::PasswordShare;
use hsmux_smartcard::dkek::{Dkek, DkekShare, KeyMaterial, ShareFile, WrappedKey, WrappedKeyFile};
use hsmux_smartcard::fuzzing::parse_content;
use hsmux_smartcard::pkcs15::{CertificateDescription, DataDescription, KeyDescription, TokenInfo};
use hsmux_smartcard::provision::Backup;
use hsmux_smartcard::tlv::{self, Tlv};

/// How deep values are looked into.
const DEEP: usize = 8;

/// BER-TLV, the descriptions that are made of it, and commands.
pub fn tlv(input: &[u8]) {
    inside(input, DEEP);
    described(input, TokenInfo::parse, TokenInfo::encode);
    described(input, KeyDescription::parse, KeyDescription::encode);
    described(
        input,
        CertificateDescription::parse,
        CertificateDescription::encode,
    );
    described(input, DataDescription::parse, DataDescription::encode);
    if let Ok(command) = CommandApdu::parse(input) {
        let written = command.encode().expect("a command that was read");
        assert!(CommandApdu::parse(&written).is_ok_and(|again| again == command));
    }
    if let Ok(response) = ResponseApdu::parse(input.to_vec()) {
        assert_eq!(*response.encode(), input);
    }
}

/// Every value inside, again after it was written.
fn inside(bytes: &[u8], deep: usize) {
    let mut read = 0;
    for value in tlv::values(bytes) {
        let Ok(value) = value else {
            return;
        };
        read += value.raw.len();
        assert!(value.value.len() < value.raw.len());
        let written = tlv::tlv(value.tag, &[value.value]);
        let (again, rest) = Tlv::first(&written).expect("a value that was written");
        assert!(rest.is_empty() && again.tag == value.tag && again.value == value.value);
        if deep > 0 {
            inside(value.value, deep - 1);
        }
    }
    assert_eq!(read, bytes.len());
}

/// A description that can be read is written and read as the same.
fn described<T: PartialEq + std::fmt::Debug, E: std::fmt::Debug>(
    input: &[u8],
    parse: fn(&[u8]) -> Result<T, E>,
    encode: fn(&T) -> Vec<u8>,
) {
    if let Ok(read) = parse(input) {
        let written = encode(&read);
        assert_eq!(
            parse(&written).expect("a description that was written"),
            read
        );
    }
}

/// Card verifiable certificates and requests.
pub fn cvc(input: &[u8]) {
    if let Ok(certificate) = Certificate::parse(input) {
        assert!(certificate.holder.starts_with(certificate.serial()));
        if let Ok(key) = certificate.public_key.to_public_key() {
            let _ = certificate.verify(&key, certificate.public_key.algorithm());
        }
    }
    let all = Certificate::parse_all(input).map_or(0, |all| all.len());
    assert!(all <= input.len());
    if let Ok(request) = CvcRequest::parse(input) {
        let _ = request.verify_inner();
        let _ = request.verify_outer(&request.certificate);
    }
    let _ = public_key_of(input);
}

static DKEK: LazyLock<Dkek> = LazyLock::new(|| Dkek::from_shares([&DkekShare::from([9; 32])]));

/// Wrapped keys, alone and in their files. Half of the inputs are clear text that is wrapped here, or else
/// nothing behind the MAC would ever be read.
pub fn key_blobs(input: &[u8]) {
    let Some((how, rest)) = input.split_first() else {
        return;
    };
    if how & 1 == 0 {
        if let Ok(key) = WrappedKey::parse(rest) {
            opened(&key);
        }
        if let Ok(file) = WrappedKeyFile::parse(rest) {
            let again = WrappedKeyFile::parse(&file.to_der()).expect("a file that was written");
            assert!(again == file);
            opened(&file.key);
        }
    } else if let Some(key) = hsmux_smartcard::fuzzing::wrap_clear_text(rest, &DKEK) {
        opened(&key);
    }
}

fn opened(key: &WrappedKey) {
    assert!(WrappedKey::parse(key.as_bytes()).as_ref() == Ok(key));
    if let Ok(material) = key.open(&DKEK) {
        let sealed = WrappedKey::seal(&material, key.allowed_algorithms(), &DKEK);
        let sealed = sealed.expect("a key that was wrapped");
        assert!(
            sealed
                .open(&DKEK)
                .is_ok_and(|again| is_same(&again, &material))
        );
    }
}

fn is_same(one: &KeyMaterial, other: &KeyMaterial) -> bool {
    let fields = one.kind().fields();
    one.kind() == other.kind()
        && fields
            .iter()
            .all(|field| one.get(*field) == other.get(*field))
}

/// Shares of a DKEK, shares of their passwords, and backups.
pub fn dkek_files(input: &[u8]) {
    if let Ok(file) = ShareFile::parse(input) {
        assert_eq!(file.as_bytes(), input);
    }
    let parsed = [Backup::parse(input), parse_content(input)];
    for backup in parsed.into_iter().flatten() {
        let written = backup.encode().expect("a backup that was read");
        assert!(Backup::parse(&written).is_ok_and(|again| again == backup));
    }
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(share) = text.parse::<PasswordShare>()
    {
        let written = share.to_text();
        assert!(
            written
                .parse::<PasswordShare>()
                .is_ok_and(|again| again.to_text() == written)
        );
    }
}
