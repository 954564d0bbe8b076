//! Signature algorithms of TLS (RFC 8446, section 4.2.3), and what each is for a token.

use boring::bn::BigNum;
use boring::ssl::SslSignatureAlgorithm;
use hsmux_software::{PublicKey, prehashed_input};
use hsmux_token::{Hash, KeyKind, Mechanism, Params, Pss, TokenInfo, ck};

/// A signature algorithm.
#[derive(Debug)]
pub struct Algorithm {
    /// As BoringSSL and the metrics call it.
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

/// What a key signs with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ability {
    /// Whether it is an EC key.
    pub ec: bool,
    /// Whether it serves TLS 1.3, which has no PKCS#1 v1.5 signatures.
    pub tls13: bool,
    /// Names for `SSL_CTX_set1_sigalgs_list`.
    pub list: String,
}

impl Ability {
    /// Of a key in a token that says this of itself, or of one in this process.
    pub fn of(key: &PublicKey, token: Option<&TokenInfo>) -> Self {
        let ec = key.kind() == KeyKind::Ec;
        let pss = token.is_none_or(|info| info.mechanism(ck::CKM_RSA_PKCS_PSS).is_some());
        let can = |form| match form {
            Form::Ecdsa => ec,
            Form::Pss => !ec && pss,
            Form::Pkcs1 => !ec,
        };
        let names = ALL.iter().filter(|one| can(one.form)).map(|one| one.name);
        Self {
            ec,
            tls13: ec || pss,
            list: names.collect::<Vec<_>>().join(":"),
        }
    }
}

impl Algorithm {
    /// The one that BoringSSL has chosen.
    pub fn of(code: SslSignatureAlgorithm) -> Option<&'static Self> {
        ALL.iter().find(|one| one.code == code)
    }

    /// The token's mechanism, and what it signs for this input.
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

    /// A token's signature in the form of TLS: of ECDSA, DER in place of two numbers side by side.
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
