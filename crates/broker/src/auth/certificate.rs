//! The identities of a client certificate.

use sha2::{Digest, Sha256};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// The names of a certificate's owner in policies; the caller has verified the chain. `fingerprint:` is the SHA-256
/// of the DER. `subject:` is in the form of RFC 4514; an empty subject gets none, since all certificates without a
/// subject would share it. `dns:`, `uri:` and `email:` come from subjectAltName.
pub fn identities(der: &[u8]) -> Vec<String> {
    let fingerprint = format!("fingerprint:{}", hex::encode(Sha256::digest(der)));
    let Ok(certificate) = Certificate::from_der(der) else {
        return vec![fingerprint];
    };
    let body = certificate.tbs_certificate();
    let subject = body.subject();
    let mut found = Vec::new();
    if !subject.is_empty() {
        found.push(format!("subject:{subject}"));
    }
    if let Ok(Some((_, SubjectAltName(names)))) = body.get_extension::<SubjectAltName>() {
        found.extend(names.iter().filter_map(|name| match name {
            GeneralName::DnsName(name) => Some(format!("dns:{name}")),
            GeneralName::UniformResourceIdentifier(name) => Some(format!("uri:{name}")),
            GeneralName::Rfc822Name(name) => Some(format!("email:{name}")),
            _ => None,
        }));
    }
    found.push(fingerprint);
    found
}
