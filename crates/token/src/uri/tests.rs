use super::*;
use crate::{Attributes, ObjectId};

fn parse(text: &str) -> Result<Uri, UriError> {
    text.parse()
}

#[test]
fn what_is_printed_reads_back() {
    for text in [
        "pkcs11:",
        "pkcs11:token=hsm1",
        "pkcs11:token=The%20Software%20token;manufacturer=Snake%20Oil;serial=;model=v1",
        "pkcs11:library-description=SoftHSM;library-version=2.6;slot-id=1870742391",
        "pkcs11:object=web;type=private;id=%00%FFa?pin-source=file:/etc/pin&module-path=/x.so",
        "pkcs11:slot-description=a%3Bb;slot-manufacturer=%C3%A4?module-name=opensc",
    ] {
        let uri = parse(text).unwrap();
        assert_eq!(parse(&uri.to_string()).unwrap(), uri, "{text}");
    }
    assert_eq!(parse("PKCS11:id=%01%Af").unwrap().id.unwrap(), [1, 0xaf]);
}

#[test]
fn a_mistake_is_named_with_its_place() {
    for (text, position, word) in [
        ("token=hsm1", 1, "pkcs11:token=hsm1"),
        ("pkcs11:tokn=hsm1", 8, "did you mean \"token\""),
        ("pkcs11:token=a;zzzzzzzz=1", 16, "there are token"),
        ("pkcs11:token", 8, "no '='"),
        ("pkcs11:token=a;token=b", 16, "twice"),
        ("pkcs11:token=a%2", 15, "hexadecimal"),
        ("pkcs11:token=a%+1", 15, "hexadecimal"),
        ("pkcs11:token=a b", 15, "%20"),
        ("pkcs11:token=%ff", 8, "UTF-8"),
        ("pkcs11:slot-id=0x1", 8, "decimal"),
        ("pkcs11:type=key", 8, "secret-key"),
        ("pkcs11:library-version=2.x", 8, "like 2.6"),
        ("pkcs11:module-path=/x", 8, "behind a '?'"),
        ("pkcs11:?token=x", 9, "before the '?'"),
        ("pkcs11:ä=x;token=%", 8, "unknown"),
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!(error.position, position, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn a_pin_is_refused_and_not_repeated() {
    let error = parse("pkcs11:token=a?pin-value=98765&module-name=x").unwrap_err();
    assert!(error.to_string().contains("does not belong"), "{error}");
    assert!(!error.to_string().contains("98765"), "{error}");
}

#[test]
fn a_pin_behind_a_wrong_separator_is_not_said() {
    for wrong in [
        "pkcs11:slot-id=3&pin-value=98765",
        "pkcs11:slot-id=3&PIN-value=98765",
        "pkcs11:token&pin-value=98765",
        "pkcs11:x=y?pin-value=1&pin-value=98765",
        "pkcs11:type=a;pin-value=1;2&pin-value=98765;4",
    ] {
        let error = parse(wrong).unwrap_err().to_string();
        assert!(!error.contains("98765"), "{error}");
    }
}

#[test]
fn a_long_name_is_compared_with_no_known_one() {
    let slip = parse("pkcs11:objekt=a").unwrap_err().to_string();
    assert!(slip.contains("did you mean \"object\""), "{slip}");
    let long = parse(&format!("pkcs11:{}=a", "object".repeat(1 << 20)));
    let long = long.unwrap_err().to_string();
    assert!(
        long.contains("there are token, "),
        "a suggestion for a long name"
    );
}

#[test]
fn it_picks_tokens_and_objects() {
    let info = TokenInfo {
        label: "hsm1".into(),
        serial: "0001".into(),
        ..TokenInfo::default()
    };
    let token = |text| parse(text).unwrap().matches_token(&info, Some(7));
    assert!(token("pkcs11:"));
    assert!(token("pkcs11:token=hsm1;serial=0001;slot-id=7"));
    assert!(!token("pkcs11:token=hsm1;slot-id=8"));
    assert!(!token("pkcs11:token=hsm"));

    let object = Object {
        id: ObjectId::of_public_key(Class::PRIVATE_KEY, b"spki"),
        attributes: Attributes::default()
            .with(ck::CKA_LABEL, b"web".to_vec())
            .with(ck::CKA_ID, vec![1, 2]),
    };
    let key = |text| parse(text).unwrap().matches_object(&object);
    assert!(key("pkcs11:object=web;type=private;id=%01%02"));
    assert!(key("pkcs11:token=whatever"));
    assert!(!key("pkcs11:object=web;type=public"));
    assert!(!key("pkcs11:id=%01"));
}
