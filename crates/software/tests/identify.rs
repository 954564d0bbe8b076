//! Names of objects, as a token lists them.

mod common;

use common::Pair;
use hsmux_software::{PublicKey, identify};
use hsmux_token::{Attributes, Class, Object, ObjectId, ck};

fn object(class: Class, id: &[u8], label: &str) -> Attributes {
    Attributes::default()
        .with_number(ck::CKA_CLASS, class.0)
        .with(ck::CKA_ID, id.to_vec())
        .with(ck::CKA_LABEL, label.as_bytes().to_vec())
}

fn public(key: &PublicKey, id: &[u8], label: &str) -> Attributes {
    let mut attributes = object(Class::PUBLIC_KEY, id, label);
    attributes.0.extend(
        key.to_attributes()
            .0
            .into_iter()
            .filter(|a| a.kind != ck::CKA_CLASS),
    );
    attributes
}

fn private_ec(id: &[u8], label: &str) -> Attributes {
    object(Class::PRIVATE_KEY, id, label).with_number(ck::CKA_KEY_TYPE, ck::CKK_EC)
}

fn certificate(pair: &Pair, id: &[u8], label: &str) -> Attributes {
    object(Class::CERTIFICATE, id, label).with(ck::CKA_VALUE, pair.certificate())
}

fn named(serial: &str, objects: &[Attributes]) -> Vec<Object> {
    identify(serial, objects.to_vec())
}

#[test]
fn both_halves_of_a_pair_have_one_name_on_every_token() {
    let (ec, rsa) = (Pair::ec("prime256v1"), Pair::rsa(1024));
    let mut private_rsa = rsa.public.to_attributes();
    private_rsa.set_number(ck::CKA_CLASS, Class::PRIVATE_KEY.0);
    let objects = [
        private_ec(&[1], "a"),
        private_rsa,
        public(&ec.public, &[1], "a"),
    ];
    let first = named("one", &objects);
    let spki = ec.public.spki();
    assert_eq!(
        first[0].id,
        ObjectId::of_public_key(Class::PRIVATE_KEY, spki)
    );
    assert_eq!(first[0].id.with_class(Class::PUBLIC_KEY), first[2].id);
    assert_eq!(first[0].attributes.get(ck::CKA_PUBLIC_KEY_INFO), Some(spki));
    assert_eq!(
        first[2].attributes, objects[2],
        "public objects stay as they are"
    );
    assert_eq!(
        first[1].id,
        ObjectId::of_public_key(Class::PRIVATE_KEY, rsa.public.spki())
    );
    assert_eq!(first, named("two", &objects));
}

#[test]
fn a_certificate_stands_in_for_the_public_key() {
    let pair = Pair::ec("secp384r1");
    let shown = certificate(&pair, &[1], "a");
    let der = shown.get(ck::CKA_VALUE).unwrap().to_vec();
    let objects = named("one", &[shown, private_ec(&[1], "b")]);
    assert_eq!(
        objects[1].id,
        ObjectId::of_public_key(Class::PRIVATE_KEY, pair.public.spki())
    );
    assert_eq!(objects[0].id, ObjectId::of_certificate(&der));
}

#[test]
fn keys_that_share_an_id_are_told_apart_or_left_alone() {
    let (one, other) = (Pair::ec("prime256v1"), Pair::ec("prime256v1"));
    let objects = named(
        "s",
        &[
            public(&one.public, &[1], "one"),
            public(&other.public, &[1], "other"),
            private_ec(&[1], "other"),
            private_ec(&[1], "neither"),
            private_ec(&[], "one"),
        ],
    );
    assert_eq!(
        objects[2].id,
        ObjectId::of_public_key(Class::PRIVATE_KEY, other.public.spki())
    );
    let unidentified = |id: &[u8], label: &str| {
        ObjectId::of_unidentified(Class::PRIVATE_KEY, "s", id, label.as_bytes())
    };
    assert_eq!(objects[3].id, unidentified(&[1], "neither"));
    assert_eq!(objects[4].id, unidentified(&[], "one"));
    assert_eq!(objects[4].attributes.get(ck::CKA_PUBLIC_KEY_INFO), None);
}

#[test]
fn the_half_is_of_the_same_family() {
    let rsa = Pair::rsa(1024);
    let objects = named(
        "s",
        &[public(&rsa.public, &[1], "a"), private_ec(&[1], "a")],
    );
    assert_eq!(
        objects[1].id,
        ObjectId::of_unidentified(Class::PRIVATE_KEY, "s", &[1], b"a")
    );
}

#[test]
fn secret_keys_are_named_by_check_value_or_by_their_token() {
    let aes = object(Class::SECRET_KEY, &[1], "a").with_number(ck::CKA_KEY_TYPE, ck::CKK_AES);
    let checked = aes.clone().with(ck::CKA_CHECK_VALUE, vec![1, 2, 3]);
    let empty = aes.clone().with(ck::CKA_CHECK_VALUE, Vec::new());
    let objects = named("s", &[checked, aes, empty]);
    assert_eq!(
        objects[0].id,
        ObjectId::of_secret_key(ck::CKK_AES, &[1], &[1, 2, 3])
    );
    let unidentified = ObjectId::of_unidentified(Class::SECRET_KEY, "s", &[1], b"a");
    assert_eq!((objects[1].id, objects[2].id), (unidentified, unidentified));
}

#[test]
fn what_cannot_be_read_is_named_by_its_token() {
    let broken = object(Class::CERTIFICATE, &[1], "broken").with(ck::CKA_VALUE, b"junk".to_vec());
    let data = object(Class::DATA, &[], "d").with(ck::CKA_VALUE, b"v".to_vec());
    let hidden = object(Class::DATA, &[], "h");
    let junk = object(Class::PUBLIC_KEY, &[1], "p").with_number(ck::CKA_KEY_TYPE, ck::CKK_EC);
    let objects = named("s", &[broken, data, hidden, junk, Attributes::default()]);
    assert_eq!(objects[0].id, ObjectId::of_certificate(b"junk"));
    assert_eq!(objects[1].id, ObjectId::of_data(b"", b"d", b"v"));
    assert_eq!(
        objects[2].id,
        ObjectId::of_unidentified(Class::DATA, "s", b"", b"h")
    );
    assert_eq!(
        objects[3].id,
        ObjectId::of_unidentified(Class::PUBLIC_KEY, "s", &[1], b"p")
    );
    assert_eq!(objects.len(), 5);
}
