//! RSA between its init and its end (provider-asym_cipher(7)): a token deciphers, this process enciphers.

use std::ffi::CStr;
use std::sync::Arc;

use hsmux_token::{Error, Hash, KeyKind, Kind, Mechanism, Oaep, Outcome, Params, Result, ck};

use super::key::ProviderKey;
use super::value::ParamValue;
use super::{names, scheme};
use crate::crypt::{Function, init_refusal};

/// RSA_PKCS1_PADDING and its like (openssl/rsa.h), with their names.
const PADDINGS: [(RsaPadding, i64, &str); 4] = [
    (RsaPadding::Pkcs1, 1, "pkcs1"),
    (RsaPadding::None, 3, "none"),
    (RsaPadding::Oaep, 4, "oaep"),
    // A slip of OpenSSL's first versions, which it still knows.
    (RsaPadding::Oaep, 4, "oeap"),
];

/// RSA_PKCS1_WITH_TLS_PADDING: how libssl deciphers the client's secret where the suite has no ECDHE.
const TLS_PADDING: i64 = 7;

/// Key, direction and padding, as far as they have been said.
#[derive(Clone, Default)]
pub struct RsaCipher {
    key: Option<Arc<ProviderKey>>,
    deciphers: bool,
    padding: RsaPadding,
    hash: Option<Hash>,
    mgf: Option<Hash>,
    label: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum RsaPadding {
    #[default]
    Pkcs1,
    Oaep,
    None,
}

impl RsaCipher {
    /// Begins anew, with another key or with the one that it has, and with the usual padding.
    pub fn begin(&mut self, key: Option<Arc<ProviderKey>>, deciphers: bool) -> Result<()> {
        let key = key.or_else(|| self.key.take());
        *self = Self {
            key,
            deciphers,
            ..Self::default()
        };
        let key = self.key()?;
        if key.public.kind() != KeyKind::Rsa {
            return Err(invalid("only RSA keys encipher and decipher"));
        }
        if deciphers && key.private.is_none() {
            return Err(invalid("no private key of the pool to decipher with"));
        }
        Ok(())
    }

    /// Takes a parameter; what is not known means nothing here.
    pub fn set(&mut self, name: &CStr, value: &ParamValue) -> Result<()> {
        if name == names::PAD_MODE {
            self.padding = padding(value)?;
        } else if name == names::DIGEST {
            self.hash = Some(scheme::hash(value)?);
        } else if name == names::MGF1_DIGEST {
            self.mgf = Some(scheme::hash(value)?);
        } else if name == names::OAEP_LABEL
            && let ParamValue::Bytes(label) = value
        {
            self.label = label.to_vec();
        }
        Ok(())
    }

    /// The value of a parameter; `None` for an unknown one.
    pub fn get(&self, name: &CStr) -> Option<ParamValue<'_>> {
        let (hash, mgf) = self.hashes();
        if name == names::PAD_MODE {
            let row = PADDINGS.iter().find(|row| row.0 == self.padding)?;
            Some(ParamValue::Text(row.2))
        } else if name == names::DIGEST {
            names::of_hash(hash).map(ParamValue::Text)
        } else if name == names::MGF1_DIGEST {
            names::of_hash(mgf).map(ParamValue::Text)
        } else {
            None
        }
    }

    /// The most that there is room to be for, in bytes.
    pub fn max_len(&self) -> usize {
        self.key.as_ref().map_or(0, |key| key.max_len())
    }

    /// Enciphers or deciphers; a token is asked only if there is enough room for the answer.
    pub fn run(&self, data: &[u8], room: usize) -> Result<Vec<u8>> {
        let len = self.max_len();
        if room < len {
            return Err(invalid(format!(
                "{len} bytes of room are needed, and there are {room}"
            )));
        }
        let mechanism = self.mechanism();
        if !self.deciphers {
            return self.key()?.public.encrypt(&mechanism, data);
        }
        if data.len() != len {
            return Err(invalid(format!(
                "{} bytes are no ciphertext of a key that has {len}",
                data.len()
            )));
        }
        let private = self.key()?.private.as_ref();
        let private =
            private.ok_or_else(|| invalid("no private key of the pool to decipher with"))?;
        let begun = private.begin(Function::Decrypt, mechanism)?;
        let operation = begun
            .operation(data)
            .map_err(|rv| Error::vendor("C_Decrypt", rv.0))?;
        let plain = private.execute(&operation).and_then(Outcome::into_bytes);
        match plain {
            Ok(plain) => Ok(plain.to_vec()),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// The same for every ciphertext that a token refuses: whether its padding was good, or what was wrong with it,
    /// would decipher messages for an attacker who may ask often enough (Bleichenbacher, 1998; Manger, 2001).
    fn failed(&self, error: Error) -> Error {
        let same = match self.padding {
            RsaPadding::Pkcs1 => error.code().is_some(),
            RsaPadding::Oaep => error.code().is_some() && init_refusal(&error).is_none(),
            RsaPadding::None => false,
        };
        if same {
            return invalid(
                "RSA decryption failed; see that the ciphertext is for this key, with this padding \
                 (rsa_padding_mode), digest and label",
            );
        }
        match self.padding {
            RsaPadding::Oaep => error.at(self.oaep()),
            RsaPadding::Pkcs1 | RsaPadding::None => error,
        }
    }

    /// OAEP's parameters in words: SoftHSM takes SHA-1 without a label alone, and other tokens have limits of theirs.
    fn oaep(&self) -> String {
        let (hash, mgf) = self.hashes();
        let label = if self.label.is_empty() { "no" } else { "a" };
        let [hash, mgf] = [hash, mgf].map(|hash| names::of_hash(hash).unwrap_or_default());
        format!("OAEP with {hash}, MGF1 with {mgf} and {label} label")
    }

    fn mechanism(&self) -> Mechanism {
        match self.padding {
            RsaPadding::Pkcs1 => Mechanism::plain(ck::CKM_RSA_PKCS),
            RsaPadding::None => Mechanism::plain(ck::CKM_RSA_X_509),
            RsaPadding::Oaep => {
                let (hash, mgf) = self.hashes();
                Mechanism {
                    kind: ck::CKM_RSA_PKCS_OAEP,
                    params: Params::Oaep(Oaep {
                        hash: hash.mechanism(),
                        mgf: mgf.mgf(),
                        label: self.label.clone().into(),
                    }),
                }
            }
        }
    }

    /// OAEP's digest and that of its mask (RFC 8017, section A.2.1: SHA-1 where none is said).
    fn hashes(&self) -> (Hash, Hash) {
        let hash = self.hash.unwrap_or(Hash::Sha1);
        (hash, self.mgf.unwrap_or(hash))
    }

    fn key(&self) -> Result<&ProviderKey> {
        self.key
            .as_deref()
            .ok_or_else(|| invalid("no key to encipher or decipher with"))
    }
}

fn padding(value: &ParamValue) -> Result<RsaPadding> {
    if value.int() == Some(TLS_PADDING) {
        let message = "the TLS client enciphers to the RSA key: a token would tell attackers which paddings are good; \
                       offer suites with ECDHE alone (-cipher ECDHE, ssl_ciphers ECDHE)";
        return Err(Error::request(Kind::Unsupported, message));
    }
    let is =
        |row: &&(RsaPadding, i64, &str)| value.int() == Some(row.1) || value.text() == Some(row.2);
    let known = PADDINGS.iter().find(is);
    let known =
        known.ok_or_else(|| invalid(format!("padding {value}: there are pkcs1, oaep and none")))?;
    Ok(known.0)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::request(Kind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn said(params: &[(&CStr, ParamValue)]) -> Mechanism {
        let mut cipher = RsaCipher::default();
        for (name, value) in params {
            cipher.set(name, value).unwrap();
        }
        cipher.mechanism()
    }

    /// As texts and as numbers.
    #[test]
    fn oaep_has_the_parameters_that_were_said() {
        for padding in [ParamValue::Text("oaep"), ParamValue::Int(4)] {
            let padding = (names::PAD_MODE, padding);
            let usual = said(std::slice::from_ref(&padding));
            assert_eq!(usual.kind, ck::CKM_RSA_PKCS_OAEP);
            assert_eq!(usual.params, Params::Oaep(Oaep::sha1()));
            let digest = (names::DIGEST, ParamValue::Text("SHA256"));
            let sha256 = said(&[padding.clone(), digest.clone()]);
            assert_eq!(sha256.params, Params::Oaep(Oaep::sha256()));
            let mask = (names::MGF1_DIGEST, ParamValue::Text("SHA1"));
            let label = (
                names::OAEP_LABEL,
                ParamValue::Bytes(Cow::Borrowed(b"label")),
            );
            let all = said(&[padding, digest, mask, label]);
            let expected = Oaep {
                mgf: ck::CKG_MGF1_SHA1,
                label: b"label".to_vec().into(),
                ..Oaep::sha256()
            };
            assert_eq!(all.params, Params::Oaep(expected));
        }
    }

    /// libssl's way to decipher a client's secret would ask the token about an attacker's paddings.
    #[test]
    fn tls_is_refused_before_any_decryption() {
        let padding = ParamValue::Int(TLS_PADDING);
        let refused = RsaCipher::default().set(names::PAD_MODE, &padding);
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("suites with ECDHE"), "{why}");
    }

    #[test]
    fn what_a_token_says_of_a_ciphertext_is_one_sentence() {
        let codes = [
            ck::CKR_ENCRYPTED_DATA_INVALID,
            ck::CKR_ENCRYPTED_DATA_LEN_RANGE,
            ck::CKR_DATA_INVALID,
            ck::CKR_GENERAL_ERROR,
            ck::CKR_FUNCTION_FAILED,
        ];
        for padding in [RsaPadding::Pkcs1, RsaPadding::Oaep] {
            let cipher = RsaCipher {
                padding,
                ..RsaCipher::default()
            };
            let failed = |error: Error| cipher.failed(error.at("hsm1")).to_string();
            let said = codes.map(|code| failed(Error::vendor("C_Decrypt", code)));
            assert!(said.iter().all(|words| *words == said[0]), "{said:?}");
            let away = failed(Error::lost("is the daemon running?"));
            assert!(away.contains("is the daemon running?"), "{away}");
        }
    }

    /// No token has all digests, and its answer to them is not about the ciphertext.
    #[test]
    fn parameters_that_a_token_refuses_are_named() {
        let mut cipher = RsaCipher::default();
        for (name, value) in [(names::PAD_MODE, "oaep"), (names::DIGEST, "SHA384")] {
            cipher.set(name, &ParamValue::Text(value)).unwrap();
        }
        let refused = Error::vendor("C_DecryptInit", ck::CKR_MECHANISM_PARAM_INVALID);
        let said = cipher.failed(refused).to_string();
        let expected = "OAEP with SHA384, MGF1 with SHA384 and no label: C_DecryptInit: ";
        assert!(said.starts_with(expected), "{said}");
    }
}
