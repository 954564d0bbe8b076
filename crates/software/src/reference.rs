//! A reference: the content of a file in place of a private key, which names the key by its URI.
//!
//! The form is that of OpenSSL's providers for PKCS#11, and such a file works with any of them:
//!
//! ```text
//! Reference ::= SEQUENCE { version VisibleString, uri UTF8String }
//! ```

use der::asn1::AnyRef;
use der::{Decode, Reader, SliceReader, Tag, Tagged};
use hsmux_token::{Class, Error, Kind, Result, Uri};

use crate::der::{content, tlv};
use crate::pem;

/// The label of the block in PEM.
pub const LABEL: &str = "PKCS#11 PROVIDER URI";

/// The only version that there is.
const VERSION: &[u8] = b"PKCS#11 Provider URI v1.0";

/// The PEM block that names a private key.
pub fn to_pem(key: &Uri) -> Result<String> {
    let uri = of_private_key(key.clone())?.to_string();
    let version = tlv(Tag::VisibleString, &[VERSION]);
    let uri = tlv(Tag::Utf8String, &[uri.as_bytes()]);
    Ok(pem::encode(LABEL, &tlv(Tag::Sequence, &[&version, &uri])))
}

/// The URI of the private key that a block's DER names.
pub fn from_der(der: &[u8]) -> Result<Uri> {
    let uri = text(der).ok_or_else(|| invalid("not the DER of a reference to a key"))?;
    let uri: Uri = uri.parse().map_err(|error| invalid(format!("{error}")))?;
    of_private_key(uri)
}

fn text(der: &[u8]) -> Option<&str> {
    let mut reader = SliceReader::new(content(der, Tag::Sequence)?).ok()?;
    let version = AnyRef::decode(&mut reader).ok()?;
    let uri = AnyRef::decode(&mut reader).ok()?;
    let good = version.tag() == Tag::VisibleString
        && version.value() == VERSION
        && uri.tag() == Tag::Utf8String
        && reader.is_finished();
    std::str::from_utf8(uri.value()).ok().filter(|_| good)
}

/// The same with `type=private`, where no type is said.
fn of_private_key(mut uri: Uri) -> Result<Uri> {
    if uri.object.is_none() && uri.id.is_none() {
        return Err(invalid(format!(
            "{uri} names no key; write object= or id=; hsmux key list shows both"
        )));
    }
    match *uri.class.get_or_insert(Class::PRIVATE_KEY) {
        Class::PRIVATE_KEY => Ok(uri),
        _ => Err(invalid(format!("{uri} names no private key"))),
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::request(Kind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    /// As `openssl asn1parse` shows one that another program has written.
    const DER: &[u8] = b"\x30\x30\x1a\x19PKCS#11 Provider URI v1.0\x0c\x13pkcs11:object=web-1";

    #[test]
    fn a_reference_is_read_as_it_was_written() {
        let key = uri("pkcs11:token=keys;object=web;type=private?pin-source=file:/etc/pin");
        let text = to_pem(&key).unwrap();
        let body: String = text.lines().filter(|line| !line.contains('-')).collect();
        assert_eq!(from_der(&pem::decode(&body).unwrap()).unwrap(), key);
    }

    #[test]
    fn the_type_is_private_where_none_is_said() {
        assert_eq!(
            from_der(DER).unwrap(),
            uri("pkcs11:object=web-1;type=private")
        );
        let written = to_pem(&uri("pkcs11:object=web")).unwrap();
        assert_eq!(
            written,
            to_pem(&uri("pkcs11:object=web;type=private")).unwrap()
        );
    }

    #[test]
    fn what_names_no_private_key_is_refused() {
        for (text, why) in [
            ("pkcs11:token=keys", "names no key"),
            ("pkcs11:type=private", "names no key"),
            ("pkcs11:object=web;type=cert", "no private key"),
        ] {
            let refused = to_pem(&uri(text)).unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
        }
        for der in [&DER[..20], &DER[1..], b"\x30\x00", b""] {
            assert!(from_der(der).is_err(), "{der:02x?}");
        }
    }
}
