//! Certification requests (PKCS#10, RFC 2986): the token signs them, so they are made in two steps.
//!
//! ```text
//! info = request_info(subject, key, names)
//! signature = sign(token, key, mechanism(key), info)
//! request = assemble(info, mechanism, signature)
//! ```

use std::net::IpAddr;
use std::time::Instant;

use der::asn1::{Ia5String, ObjectIdentifier, OctetString, UintRef};
use der::{Encode, Tag};
use hsmux_token::{
    Blob, Error, Hash, KeyKind, Kind, Mechanism, ObjectId, Operation, Result, Token, Verb, ck,
    entry,
};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;

use crate::der::{context, tlv};
use crate::{PublicKey, digest, prehash, prehashed_input};

const EXTENSION_REQUEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");
const SUBJECT_ALT_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");

/// The DER of the CertificationRequestInfo, which is what gets signed.
///
/// `subject` is a distinguished name as RFC 4514 writes it (`CN=www.example.com,O=Example`), or empty; `names`
/// go into subjectAltName: IP addresses, mail addresses, URIs and DNS names, by their looks.
pub fn request_info(subject: &str, key: &PublicKey, names: &[String]) -> Result<Vec<u8>> {
    let name = match subject {
        "" => Name::default(),
        _ => subject.parse().map_err(|error| {
            invalid(format!(
                "subject {subject:?}: {error}; write it as CN=www.example.com,O=Example"
            ))
        })?,
    };
    let name = name
        .to_der()
        .map_err(|e| invalid(format!("subject {subject:?}: {e}")))?;
    let attributes = if names.is_empty() {
        Vec::new()
    } else {
        extension_request(names)?
    };
    let version = tlv(Tag::Integer, &[&[0]]);
    let attributes = tlv(context(0), &[&attributes]);
    Ok(tlv(
        Tag::Sequence,
        &[&version, &name, key.spki(), &attributes],
    ))
}

/// The mechanism that fits a key best: SHA-256, or as much as its curve is worth.
///
/// A token without the hashing form signs the same by [`crate::prehash`].
pub fn mechanism(key: &PublicKey) -> Mechanism {
    Mechanism::plain(match (key.kind(), key.bits()) {
        (KeyKind::Rsa, _) => ck::CKM_SHA256_RSA_PKCS,
        (KeyKind::Edwards, _) => ck::CKM_EDDSA,
        (_, ..=256) => ck::CKM_ECDSA_SHA256,
        (_, ..=384) => ck::CKM_ECDSA_SHA384,
        _ => ck::CKM_ECDSA_SHA512,
    })
}

/// Signs with a mechanism that hashes, also where the token has only the one that does not.
pub fn sign(
    token: &dyn Token,
    key: ObjectId,
    mechanism: &Mechanism,
    data: &[u8],
    deadline: Instant,
) -> Result<Vec<u8>> {
    let offered = token.info().mechanism(mechanism.kind).is_some();
    let (mechanism, data) = match prehash(mechanism) {
        Some((hash, raw)) if !offered => {
            let hashed = digest(hash, data);
            let input = prehashed_input(hash, &raw, &hashed).into_owned();
            (raw, input)
        }
        _ => (mechanism.clone(), data.to_vec()),
    };
    let operation = Operation::Use {
        verb: Verb::Sign,
        key: key.into(),
        mechanism,
        data: Blob::from(data),
    };
    Ok(token.execute(&operation, deadline)?.into_bytes()?.to_vec())
}

/// The DER of the request: the info, by which mechanism it was signed, and the signature as the
/// token gave it.
pub fn assemble(info: &[u8], mechanism: &Mechanism, signature: &[u8]) -> Result<Vec<u8>> {
    let algorithm = algorithm(mechanism).ok_or_else(|| {
        let name = mechanism.name();
        Error::request(
            Kind::Unsupported,
            format!("{name}: certification requests are not signed by it here"),
        )
    })?;
    let signature = signature_value(mechanism, signature)?;
    let signature = tlv(Tag::BitString, &[&[0], &signature]);
    Ok(tlv(Tag::Sequence, &[info, &algorithm, &signature]))
}

/// A signature as requests, certificates and lists have it, of the one that the token gave.
pub fn signature_value(mechanism: &Mechanism, signature: &[u8]) -> Result<Vec<u8>> {
    let is_ecdsa = entry(mechanism.kind).is_some_and(|entry| entry.key == KeyKind::Ec);
    if is_ecdsa {
        ecdsa_der(signature)
    } else {
        Ok(signature.to_vec())
    }
}

fn extension_request(names: &[String]) -> Result<Vec<u8>> {
    let names = names
        .iter()
        .map(|name| {
            general_name(name)
                .and_then(|name| name.to_der())
                .map_err(|error| invalid(format!("alternative name {name:?}: {error}")))
        })
        .collect::<Result<Vec<_>>>()?
        .concat();
    let names = tlv(Tag::OctetString, &[&tlv(Tag::Sequence, &[&names])]);
    let extension = tlv(Tag::Sequence, &[&oid(SUBJECT_ALT_NAME), &names]);
    let values = tlv(Tag::Set, &[&tlv(Tag::Sequence, &[&extension])]);
    Ok(tlv(Tag::Sequence, &[&oid(EXTENSION_REQUEST), &values]))
}

fn general_name(name: &str) -> der::Result<GeneralName> {
    if let Ok(address) = name.parse::<IpAddr>() {
        let bytes = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        return Ok(GeneralName::IpAddress(OctetString::new(bytes)?));
    }
    let text = Ia5String::new(name)?;
    Ok(if name.contains("://") {
        GeneralName::UniformResourceIdentifier(text)
    } else if name.contains('@') {
        GeneralName::Rfc822Name(text)
    } else {
        GeneralName::DnsName(text)
    })
}

/// The AlgorithmIdentifier of a mechanism that hashes (RFC 4055, RFC 5758, RFC 8410; FIPS 202 forms by
/// NIST's registry); `None` of one that certificates are not signed by here.
pub fn algorithm(mechanism: &Mechanism) -> Option<Vec<u8>> {
    if mechanism.kind == ck::CKM_EDDSA {
        let ed25519 = ObjectIdentifier::new_unwrap("1.3.101.112");
        return Some(tlv(Tag::Sequence, &[&oid(ed25519)]));
    }
    let prehash = entry(mechanism.kind)?.prehash?;
    let (rsa, ecdsa) = match prehash.hash {
        Hash::Md5 => return None,
        Hash::Sha1 => ("1.2.840.113549.1.1.5", "1.2.840.10045.4.1"),
        Hash::Sha224 => ("1.2.840.113549.1.1.14", "1.2.840.10045.4.3.1"),
        Hash::Sha256 => ("1.2.840.113549.1.1.11", "1.2.840.10045.4.3.2"),
        Hash::Sha384 => ("1.2.840.113549.1.1.12", "1.2.840.10045.4.3.3"),
        Hash::Sha512 => ("1.2.840.113549.1.1.13", "1.2.840.10045.4.3.4"),
        Hash::Sha3_224 => ("2.16.840.1.101.3.4.3.13", "2.16.840.1.101.3.4.3.9"),
        Hash::Sha3_256 => ("2.16.840.1.101.3.4.3.14", "2.16.840.1.101.3.4.3.10"),
        Hash::Sha3_384 => ("2.16.840.1.101.3.4.3.15", "2.16.840.1.101.3.4.3.11"),
        Hash::Sha3_512 => ("2.16.840.1.101.3.4.3.16", "2.16.840.1.101.3.4.3.12"),
    };
    match prehash.raw {
        ck::CKM_RSA_PKCS => {
            let null = tlv(Tag::Null, &[]);
            Some(tlv(
                Tag::Sequence,
                &[&oid(ObjectIdentifier::new(rsa).ok()?), &null],
            ))
        }
        ck::CKM_ECDSA => Some(tlv(
            Tag::Sequence,
            &[&oid(ObjectIdentifier::new(ecdsa).ok()?)],
        )),
        _ => None,
    }
}

/// r and s as PKCS#11 writes them, as X.509 does (RFC 3279, section 2.2.3).
fn ecdsa_der(signature: &[u8]) -> Result<Vec<u8>> {
    let (r, s) = signature.split_at(signature.len() / 2);
    let integer = |bytes| {
        UintRef::new(bytes)
            .and_then(|number| number.to_der())
            .map_err(|error| invalid(format!("the signature is not r and s: {error}")))
    };
    Ok(tlv(Tag::Sequence, &[&integer(r)?, &integer(s)?]))
}

fn oid(oid: ObjectIdentifier) -> Vec<u8> {
    oid.to_der().unwrap_or_default()
}

fn invalid(message: String) -> Error {
    Error::request(Kind::Invalid, message)
}
