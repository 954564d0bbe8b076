//! Certification requests by keys of the pool, and certificates onto it.

use std::sync::Arc;
use std::time::Instant;

use der::{Decode, Encode};
use hsmux_pool::{Catalogue, Entry, Pool};
use hsmux_software::{PublicKey, csr, pem};
use hsmux_token::{Attributes, Class, Error, Kind, Object, ObjectId, Operation, Result, Uri, ck};
use x509_cert::Certificate;

use super::find;

/// A request (PKCS#10) in PEM, signed by a key of the pool.
pub fn request(
    pool: &Pool,
    key: &Uri,
    subject: &str,
    names: &[String],
    deadline: Instant,
) -> Result<String> {
    let catalogue = pool.catalogue();
    let key = find::one(&catalogue, key, Class::PRIVATE_KEY)?;
    let public = PublicKey::from_attributes(&key.attributes)?;
    let info = csr::request_info(subject, &public, names)?;
    let mechanism = csr::mechanism(&public);
    let signature = csr::sign(pool, key.id, &mechanism, &info, deadline)?;
    public.verify(&mechanism, &info, &signature)?;
    Ok(pem::encode(
        "CERTIFICATE REQUEST",
        &csr::assemble(&info, &mechanism, &signature)?,
    ))
}

/// The bytes of a certificate's CKA_ID if the pool has no key to take it from.
const ID_LEN: usize = 20;

/// What makes a certificate object of a certificate: label and id are those of its key, where the
/// pool has it. A note says if it has none.
pub fn import(
    catalogue: &Catalogue,
    der: Vec<u8>,
    label: Option<String>,
    id: Option<Vec<u8>>,
) -> Result<(Operation, Option<String>)> {
    let bad = |e: der::Error| Error::request(Kind::Invalid, format!("not a certificate: {e}"));
    let certificate = Certificate::from_der(&der).map_err(bad)?;
    let certified = certificate.tbs_certificate();
    let subject = certified.subject();
    let public = PublicKey::from_certificate(&der)?;
    let key = of_key(catalogue, &public);
    let text = |kind| key.as_ref().and_then(|key| key.attributes.text(kind));
    let label = label
        .or_else(|| text(ck::CKA_LABEL))
        .unwrap_or_else(|| subject.to_string());
    let id = id
        .or_else(|| Some(key.as_ref()?.attributes.get(ck::CKA_ID)?.to_vec()))
        .unwrap_or_else(|| {
            let key = ObjectId::of_public_key(Class::PUBLIC_KEY, public.spki());
            key.name[..ID_LEN].to_vec()
        });
    refuse_second(catalogue, &id, &der)?;
    let template = Attributes::default()
        .with_number(ck::CKA_CLASS, ck::CKO_CERTIFICATE)
        .with_number(ck::CKA_CERTIFICATE_TYPE, ck::CKC_X_509)
        .with_flag(ck::CKA_TOKEN, true)
        .with_flag(ck::CKA_PRIVATE, false)
        .with(ck::CKA_LABEL, label.into_bytes())
        .with(ck::CKA_ID, id)
        .with(ck::CKA_SUBJECT, subject.to_der().map_err(bad)?)
        .with(ck::CKA_ISSUER, certified.issuer().to_der().map_err(bad)?)
        .with(
            ck::CKA_SERIAL_NUMBER,
            certified.serial_number().to_der().map_err(bad)?,
        )
        .with(ck::CKA_VALUE, der);
    let create = Operation::Create {
        template,
        near: None,
    };
    let note = "no key in the pool belongs to this certificate: hsmux key list shows the keys";
    Ok((create, key.is_none().then(|| note.to_owned())))
}

/// Programs take the certificate of a key by its CKA_ID, and cards have room for one. The same certificate may have
/// another CKA_ID: the 32 bytes that earlier versions gave it if it came before its key. Tokens of other hosts are not
/// where it would be written.
fn refuse_second(catalogue: &Catalogue, id: &[u8], der: &[u8]) -> Result<()> {
    let own = |entry: &&Arc<Entry>| !entry.hidden && catalogue.is_own(entry);
    let certificates = || {
        let entries = catalogue.entries.values().filter(own);
        let objects = entries.map(|entry| &entry.object);
        objects.filter(|object| object.id.class == Class::CERTIFICATE)
    };
    let of_id = |object: &&Arc<Object>| object.attributes.get(ck::CKA_ID) == Some(id);
    let same = |object: &&Arc<Object>| object.attributes.get(ck::CKA_VALUE) == Some(der);
    let Some(other) = certificates()
        .find(same)
        .or_else(|| certificates().find(of_id))
    else {
        return Ok(());
    };
    let attributes = &other.attributes;
    let label = attributes.text(ck::CKA_LABEL).unwrap_or_default();
    let its = hex::encode(attributes.get(ck::CKA_ID).unwrap_or_default());
    let message = match (same(&other), of_id(&other)) {
        (true, true) => format!(
            "this certificate is in the pool already: {label:?}, id {its}. To members that lack it: hsmux key clone \
             --id {its} --type cert"
        ),
        (true, false) => format!(
            "this certificate is in the pool already, with another id: {label:?}, id {its} and not {}. Delete it first \
             (hsmux key delete --id {its} --type cert), and import it again",
            hex::encode(id)
        ),
        (false, _) => format!(
            "the pool has another certificate of this id: {label:?}, id {its}. Delete that one first (hsmux key delete \
             --id {its} --type cert), or give this one an --id of its own"
        ),
    };
    Err(Error::request(Kind::Invalid, message))
}

fn of_key(catalogue: &Catalogue, public: &PublicKey) -> Option<Arc<Object>> {
    let id = ObjectId::of_public_key(Class::PRIVATE_KEY, public.spki());
    let known = catalogue.get(&id);
    // A key that hsmux cannot check has a name that does not follow from its public half.
    let says_so = |entry: &&Arc<Entry>| {
        let attributes = &entry.object.attributes;
        entry.object.id.class == Class::PRIVATE_KEY
            && attributes.get(ck::CKA_PUBLIC_KEY_INFO) == Some(public.spki())
    };
    let entry = known.or_else(|| catalogue.entries.values().find(says_so));
    entry.map(|entry| Arc::clone(&entry.object))
}
