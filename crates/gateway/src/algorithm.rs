//! Signature algorithms of TLS (RFC 8446, section 4.2.3), and the token mechanism of each.

use boring::bn::BigNum;
use boring::ssl::SslSignatureAlgorithm;
use hsmux_software::prehashed_input;
use hsmux_token::{Hash, Mechanism, Params, Pss, ck};

/// A signature algorithm.
#[derive(Debug)]
pub struct Algorithm {
    /// Its name in BoringSSL and in metrics.
    pub name: &'static str,
    code: SslSignatureAlgorithm,
    hash: Hash,
    form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Ecdsa,
    Pss,
    Pkcs1,
}

macro_rules! algorithms {
    ($($name:literal $code:ident $hash:ident $form:ident,)*) => {
        &[$(Algorithm {
            name: $name,
            code: SslSignatureAlgorithm::$code,
            hash: Hash::$hash,
            form: Form::$form,
        },)*]
    };
}

/// In the order of preference.
const ALL: &[Algorithm] = algorithms! {
    "ecdsa_secp256r1_sha256" ECDSA_SECP256R1_SHA256 Sha256 Ecdsa,
    "ecdsa_secp384r1_sha384" ECDSA_SECP384R1_SHA384 Sha384 Ecdsa,
    "rsa_pss_rsae_sha256" RSA_PSS_RSAE_SHA256 Sha256 Pss,
    "rsa_pss_rsae_sha384" RSA_PSS_RSAE_SHA384 Sha384 Pss,
    "rsa_pss_rsae_sha512" RSA_PSS_RSAE_SHA512 Sha512 Pss,
    "rsa_pkcs1_sha256" RSA_PKCS1_SHA256 Sha256 Pkcs1,
    "rsa_pkcs1_sha384" RSA_PKCS1_SHA384 Sha384 Pkcs1,
    "rsa_pkcs1_sha512" RSA_PKCS1_SHA512 Sha512 Pkcs1,
};

/// The algorithms that a key can sign with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ability {
    /// Whether it is an EC key.
    pub ec: bool,
    /// Whether it can serve TLS 1.3, which has no PKCS#1 v1.5 signatures.
    pub tls13: bool,
    /// Names for `SSL_CTX_set1_sigalgs_list`.
    pub list: String,
}

impl Ability {
    /// The algorithms of an EC or RSA key. `can` tells whether its tokens have a mechanism. If nothing is known of an
    /// RSA key it gets PKCS#1 v1.5.
    pub fn of(ec: bool, can: impl Fn(u64) -> bool) -> Self {
        let pss = can(ck::CKM_RSA_PKCS_PSS);
        let pkcs1 = can(ck::CKM_RSA_PKCS) || !pss;
        let offered = |form| match form {
            Form::Ecdsa => ec,
            Form::Pss => !ec && pss,
            Form::Pkcs1 => !ec && pkcs1,
        };
        let names = ALL.iter().filter(|one| offered(one.form));
        let names = names.map(|one| one.name);
        Self {
            ec,
            tls13: ec || pss,
            list: names.collect::<Vec<_>>().join(":"),
        }
    }
}

impl Algorithm {
    /// The algorithm that BoringSSL has chosen.
    pub fn of(code: SslSignatureAlgorithm) -> Option<&'static Self> {
        ALL.iter().find(|one| one.code == code)
    }

    /// The token's mechanism, and the data that it signs for this input.
    pub fn prepare(&self, input: &[u8]) -> (Mechanism, Vec<u8>) {
        let mechanism = match self.form {
            Form::Ecdsa => Mechanism::plain(ck::CKM_ECDSA),
            Form::Pkcs1 => Mechanism::plain(ck::CKM_RSA_PKCS),
            Form::Pss => Mechanism {
                kind: ck::CKM_RSA_PKCS_PSS,
                params: Params::Pss(Pss {
                    hash: self.hash.mechanism(),
                    mgf: self.hash.mgf(),
                    salt: self.hash.len() as u64,
                }),
            },
        };
        let digest = hsmux_software::digest(self.hash, input);
        let data = prehashed_input(self.hash, &mechanism, &digest).into_owned();
        (mechanism, data)
    }

    /// Converts a token's signature to the form of TLS. ECDSA: two concatenated numbers become DER.
    pub fn finish(&self, signature: &[u8]) -> Option<Vec<u8>> {
        if self.form != Form::Ecdsa {
            return Some(signature.to_vec());
        }
        let (r, s) = signature.split_at_checked(signature.len() / 2)?;
        let (r, s) = (BigNum::from_slice(r).ok()?, BigNum::from_slice(s).ok()?);
        let signature = boring::ecdsa::EcdsaSig::from_private_components(r, s).ok()?;
        signature.to_der().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PKCS1: &str = "rsa_pkcs1_sha256:rsa_pkcs1_sha384:rsa_pkcs1_sha512";
    const PSS: &str = "rsa_pss_rsae_sha256:rsa_pss_rsae_sha384:rsa_pss_rsae_sha512";

    fn rsa(mechanisms: &[u64]) -> (bool, String) {
        let ability = Ability::of(false, |kind| mechanisms.contains(&kind));
        assert!(!ability.ec);
        (ability.tls13, ability.list)
    }

    #[test]
    fn rsa_offers_what_its_tokens_can_sign() {
        let both = [ck::CKM_RSA_PKCS, ck::CKM_RSA_PKCS_PSS];
        assert_eq!(rsa(&both), (true, format!("{PSS}:{PKCS1}")));
        assert_eq!(rsa(&[ck::CKM_RSA_PKCS_PSS]), (true, PSS.to_owned()));
        for without_pss in [&[ck::CKM_RSA_PKCS, ck::CKM_ECDSA][..], &[]] {
            assert_eq!(rsa(without_pss), (false, PKCS1.to_owned()));
        }
    }

    #[test]
    fn ec_does_not_need_rsa_mechanisms() {
        let ability = Ability::of(true, |kind| kind == ck::CKM_ECDSA);
        let list = "ecdsa_secp256r1_sha256:ecdsa_secp384r1_sha384";
        assert_eq!((ability.ec, ability.tls13), (true, true));
        assert_eq!(ability.list, list);
    }
}
