//! Names of keys and files on a card.

use std::fmt;

/// The number of a key on one card: 0 is the device's own key, 1 to 255 are the user's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyReference(pub u8);

impl fmt::Debug for KeyReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}", self.0)
    }
}

impl fmt::Display for KeyReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A file identifier: what it holds is in its first byte, of which key or object in its second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u16);

/// The content of the files of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// C4: description of a private or secret key (PKCS#15).
    KeyDescription = 0xC4,
    /// C8: description of a CA certificate (PKCS#15).
    CertificateDescription = 0xC8,
    /// C9: description of a data object (PKCS#15).
    DataDescription = 0xC9,
    /// CA: a certificate that belongs to no key of the card.
    CaCertificate = 0xCA,
    /// CC: a key.
    Key = 0xCC,
    /// CD: a data object that needs the PIN to be read.
    ProtectedData = 0xCD,
    /// CE: the certificate of a key, or the request that its generation answered.
    Certificate = 0xCE,
    /// CF: a data object that anybody may read.
    Data = 0xCF,
}

impl FileKind {
    const ALL: [Self; 8] = [
        Self::KeyDescription,
        Self::CertificateDescription,
        Self::DataDescription,
        Self::CaCertificate,
        Self::Key,
        Self::ProtectedData,
        Self::Certificate,
        Self::Data,
    ];

    /// The file of this kind with this number.
    pub const fn file(self, number: u8) -> FileId {
        FileId((self as u16) << 8 | number as u16)
    }
}

impl FileId {
    /// Certificates of the device key and of its issuer.
    pub const DEVICE_CERTIFICATES: Self = Self(0x2F02);
    /// TokenInfo: the label.
    pub const TOKEN_INFO: Self = Self(0x2F03);
    /// The file for a wrapped key before UNWRAP KEY.
    pub const WRAPPED_KEY: Self = Self(0x2F10);

    /// Its content, if its range is known.
    pub fn kind(self) -> Option<FileKind> {
        let [high, _] = self.0.to_be_bytes();
        FileKind::ALL.into_iter().find(|kind| *kind as u8 == high)
    }

    /// The second byte: the number of the key or object.
    pub const fn number(self) -> u8 {
        self.0 as u8
    }
}

impl KeyReference {
    /// The key's file of this kind: its description, its certificate.
    pub const fn file(self, kind: FileKind) -> FileId {
        kind.file(self.0)
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {:04X}", self.0)
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
