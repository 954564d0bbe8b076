//! A key as OpenSSL holds it (provider-keymgmt(7)): what it is, and whom to ask for its signatures.

use std::borrow::Cow;
use std::ffi::CStr;
use std::sync::Arc;

use hsmux_software::{PublicKey, PublicValues};
use hsmux_token::{
    Attributes, Error, KeyKind, Kind, Mechanism, Object, Operation, Outcome, Result, Uri, ck,
};

use super::context::ProviderContext;
use super::names;
use super::value::ParamValue;
use crate::crypt::{ActiveOperation, Function};
use crate::mechanisms::Mechanisms;
use crate::object::{ObjectEntry, ObjectLocation};

/// A public key, and the private one where it is the pool's.
pub struct ProviderKey {
    /// The public key.
    pub public: PublicKey,
    /// The private key.
    pub private: Option<PoolPrivateKey>,
}

/// The pool's description of a private key, valid in any process.
pub struct PoolPrivateKey {
    context: Arc<ProviderContext>,
    entry: Arc<ObjectEntry>,
    uri: Uri,
    offered: Mechanisms,
}

impl PoolPrivateKey {
    /// A key of the pool, and what it was found by.
    pub fn new(context: Arc<ProviderContext>, key: Object, uri: &Uri, offered: Mechanisms) -> Self {
        let location = ObjectLocation::Token(key.id);
        Self {
            context,
            entry: Arc::new(ObjectEntry::new(0, location, 0, key.attributes)),
            uri: Uri {
                pin_source: None,
                ..uri.clone()
            },
            offered,
        }
    }

    /// The key's URI, without where its PIN is.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Begins a signature or a decryption; the pool is not asked yet.
    pub fn begin(&self, function: Function, mechanism: Mechanism) -> Result<ActiveOperation> {
        let key = Arc::clone(&self.entry);
        let name = mechanism.name();
        let begun = ActiveOperation::keyed(function, mechanism, key, &self.offered);
        begun.map_err(|rv| {
            let call = match function {
                Function::Decrypt => "C_DecryptInit",
                _ => "C_SignInit",
            };
            Error::vendor(call, rv.0).at(name).at(&self.uri)
        })
    }

    /// Has the pool do something with it.
    pub fn execute(&self, operation: &Operation) -> Result<Outcome> {
        self.context.with(|backend| backend.execute(operation))
    }
}

impl ProviderKey {
    /// A public key from OpenSSL's parameters; `None` where they are not those of one.
    pub fn import<'v>(
        kind: KeyKind,
        value: impl Fn(&CStr) -> Option<ParamValue<'v>>,
    ) -> Option<Self> {
        let attributes = match kind {
            KeyKind::Rsa => Attributes::default()
                .with_number(ck::CKA_KEY_TYPE, ck::CKK_RSA)
                .with(ck::CKA_MODULUS, bytes(value(names::MODULUS)?)?)
                .with(ck::CKA_PUBLIC_EXPONENT, bytes(value(names::EXPONENT)?)?),
            _ => Attributes::default()
                .with_number(ck::CKA_KEY_TYPE, ck::CKK_EC)
                .with(ck::CKA_EC_PARAMS, curve_name(value(names::GROUP)?.text()?)?)
                .with(ck::CKA_EC_POINT, bytes(value(names::POINT)?)?),
        };
        let public = PublicKey::from_attributes(&attributes).ok()?;
        Some(Self {
            public,
            private: None,
        })
    }

    /// The public key for another provider; only its curve, if not even the `public` key is asked for.
    ///
    /// A private key is never exported: OpenSSL would take the public half alone for the whole key, and sign with it
    /// in its own provider.
    pub fn exported(
        &self,
        private: bool,
        public: bool,
    ) -> Result<Vec<(&'static CStr, ParamValue<'_>)>> {
        if let Some(key) = self.private.as_ref().filter(|_| private) {
            let message = format!(
                "{}: the private key stays in the pool; -pubout writes its public key, and -text -noout shows it",
                key.uri
            );
            return Err(Error::request(Kind::Forbidden, message));
        }
        let mut values = self.public_values();
        if !public {
            values.retain(|(name, _)| *name == names::GROUP);
        }
        Ok(values)
    }

    /// The value of a parameter of the key; `None` for an unknown one.
    pub fn describe(&self, name: &CStr) -> Option<ParamValue<'_>> {
        if name == names::BITS {
            return Some(ParamValue::size(self.public.bits()));
        }
        if name == names::SECURITY_BITS {
            return Some(ParamValue::size(self.security_bits()));
        }
        if name == names::MAX_SIZE {
            return Some(ParamValue::size(self.max_len()));
        }
        if name == names::DEFAULT_DIGEST {
            return Some(ParamValue::Text("SHA256"));
        }
        if name == names::POINT_FORMAT && self.public.kind() == KeyKind::Ec {
            return Some(ParamValue::Text("uncompressed"));
        }
        let name = if name == names::ENCODED_POINT {
            names::POINT
        } else {
            name
        };
        let mut values = self.public_values().into_iter();
        values.find(|(key, _)| *key == name).map(|found| found.1)
    }

    /// The public key as OpenSSL's parameters.
    pub fn public_values(&self) -> Vec<(&'static CStr, ParamValue<'_>)> {
        match self.public.values() {
            PublicValues::Rsa { modulus, exponent } => vec![
                (names::MODULUS, ParamValue::Number(modulus.into())),
                (names::EXPONENT, ParamValue::Number(exponent.into())),
            ],
            PublicValues::Point(point) => {
                let curve = self.public.curve().map(names::of_curve);
                let group = curve.map(|curve| (names::GROUP, ParamValue::Text(curve)));
                let point = (names::POINT, ParamValue::Bytes(Cow::Borrowed(point)));
                group.into_iter().chain([point]).collect()
            }
        }
    }

    /// The most that a signature or a ciphertext has, in X.509's form, in bytes.
    pub fn max_len(&self) -> usize {
        let len = self.public.signature_len();
        if self.public.kind() == KeyKind::Rsa {
            return len;
        }
        // Two INTEGERs, each with a byte more where its first bit is set, and a SEQUENCE around.
        let both = 2 * (len / 2 + 3);
        both + if both < 128 { 2 } else { 3 }
    }

    /// NIST SP 800-57 part 1, table 2; for 4096 bits as OpenSSL has it (FIPS 140-2 IG, 7.5).
    fn security_bits(&self) -> usize {
        let bits = self.public.bits();
        if self.public.kind() != KeyKind::Rsa {
            return (bits / 2).min(256);
        }
        match bits {
            15360.. => 256,
            7680.. => 192,
            4096.. => 152,
            3072.. => 128,
            2048.. => 112,
            1024.. => 80,
            _ => 0,
        }
    }
}

fn bytes(value: ParamValue<'_>) -> Option<Vec<u8>> {
    match value {
        ParamValue::Number(bytes) | ParamValue::Bytes(bytes) => Some(bytes.into_owned()),
        _ => None,
    }
}

/// CKA_EC_PARAMS by a curve's name: a PrintableString (PKCS#11 3.0, section 2.3.3).
fn curve_name(name: &str) -> Option<Vec<u8>> {
    let len = u8::try_from(name.len()).ok().filter(|len| *len < 128)?;
    Some([&[0x13, len], name.as_bytes()].concat())
}
