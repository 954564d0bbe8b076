//! A public key: from wherever it is written, to whatever is computed with it.

use std::sync::Arc;

use der::asn1::{Any, BitStringRef, ObjectIdentifier, UintRef};
use der::{Decode, Encode};
use hsmux_token::{Attributes, Class, Error, KeyKind, Kind, Mechanism, Pss, Result, ck};
use pkcs1::RsaPublicKey;
use spki::{AlgorithmIdentifier, SubjectPublicKeyInfo, SubjectPublicKeyInfoRef};

use crate::{Agreement, curve, prehash, prehashed_input, rsa};

/// A public key: RSA, on an elliptic curve, Edwards or Montgomery. Cheap to clone.
///
/// A key on a curve whose arithmetic is not here still has its encodings (and so its name); to verify
/// with it is an error that names the curve.
#[derive(Clone)]
pub struct PublicKey(Arc<KeyInner>);

struct KeyInner {
    spki: Vec<u8>,
    form: KeyForm,
}

/// The public values as bytes: big-endian numbers without leading zeros, or a bare, uncompressed point.
#[derive(PartialEq, Eq, Debug)]
pub enum PublicValues<'a> {
    /// The values of an RSA key.
    Rsa {
        /// CKA_MODULUS.
        modulus: Vec<u8>,
        /// CKA_PUBLIC_EXPONENT.
        exponent: Vec<u8>,
    },
    /// The point of a key on a curve.
    Point(&'a [u8]),
}

enum KeyForm {
    Rsa(rsa::RsaKey),
    Curve(curve::CurveKey),
}

const RSA_ENCRYPTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const RSASSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");
const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");

impl PublicKey {
    /// From the DER of a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7).
    pub fn from_spki(der: &[u8]) -> Result<Self> {
        let info = SubjectPublicKeyInfoRef::from_der(der)
            .map_err(|e| malformed("SubjectPublicKeyInfo", e))?;
        let algorithm = &info.algorithm;
        let bits = info.subject_public_key.raw_bytes();
        if [RSA_ENCRYPTION, RSASSA_PSS].contains(&algorithm.oid) {
            let key =
                pkcs1::RsaPublicKeyRef::from_der(bits).map_err(|e| malformed("RSAPublicKey", e))?;
            return Self::rsa(key.modulus.as_bytes(), key.public_exponent.as_bytes());
        }
        let (kind, params) = if algorithm.oid == EC_PUBLIC_KEY {
            (KeyKind::Ec, algorithm.parameters.to_der())
        } else {
            (
                edwards_or_montgomery(algorithm.oid)?,
                algorithm.oid.to_der(),
            )
        };
        let params = params.map_err(|e| malformed("AlgorithmIdentifier", e))?;
        Self::on_curve(kind, &params, bits)
    }

    /// From the DER of an X.509 certificate, of which only the key is looked at.
    pub fn from_certificate(der: &[u8]) -> Result<Self> {
        let spki = crate::der::spki_of_certificate(der)
            .ok_or_else(|| Error::request(Kind::Invalid, "not the DER of an X.509 certificate"))?;
        Self::from_spki(spki)
    }

    /// From the attributes of a public key; or of a private key that tells its public half: RSA by
    /// modulus and exponent, any by CKA_PUBLIC_KEY_INFO; or of a certificate, by its value.
    pub fn from_attributes(attributes: &Attributes) -> Result<Self> {
        let some = |kind| attributes.get(kind).filter(|value| !value.is_empty());
        if attributes.number(ck::CKA_CLASS) == Some(Class::CERTIFICATE.0) {
            return Self::from_certificate(some(ck::CKA_VALUE).unwrap_or_default());
        }
        let key_type = attributes.number(ck::CKA_KEY_TYPE).unwrap_or(u64::MAX);
        let kind = KeyKind::of(key_type);
        if let (Some(modulus), Some(exponent), KeyKind::Rsa) =
            (some(ck::CKA_MODULUS), some(ck::CKA_PUBLIC_EXPONENT), kind)
        {
            return Self::rsa(modulus, exponent);
        }
        let on_curve = matches!(kind, KeyKind::Ec | KeyKind::Edwards | KeyKind::Montgomery);
        if let (Some(params), Some(point), true) =
            (some(ck::CKA_EC_PARAMS), some(ck::CKA_EC_POINT), on_curve)
        {
            return Self::on_curve(kind, params, point);
        }
        match some(ck::CKA_PUBLIC_KEY_INFO) {
            Some(spki) => Self::from_spki(spki),
            None => Err(Error::request(
                Kind::Invalid,
                format!("key type {key_type}: its attributes do not tell the public key"),
            )),
        }
    }

    /// The DER of the SubjectPublicKeyInfo in one canonical form, whatever the key was read from:
    /// rsaEncryption with NULL, a named curve with an uncompressed point.
    pub fn spki(&self) -> &[u8] {
        &self.0.spki
    }

    /// Size of the modulus or of the curve's field.
    pub fn bits(&self) -> usize {
        match &self.0.form {
            KeyForm::Rsa(key) => key.bits(),
            KeyForm::Curve(key) => key.bits,
        }
    }

    /// The name of an elliptic key's curve: `P-256`, `brainpoolP256r1`. The error names one that is not known here.
    pub fn curve(&self) -> Result<&'static str> {
        match &self.0.form {
            KeyForm::Rsa(_) => Err(Error::request(Kind::Invalid, "an RSA key is on no curve")),
            KeyForm::Curve(key) => key.curve(),
        }
    }

    /// The name of its curve, if hsmux cannot compute on that.
    pub fn unchecked_curve(&self) -> Option<String> {
        match &self.0.form {
            KeyForm::Rsa(_) => None,
            KeyForm::Curve(key) => key.without_verifier().map(str::to_owned),
        }
    }

    /// The family.
    pub fn kind(&self) -> KeyKind {
        match &self.0.form {
            KeyForm::Rsa(_) => KeyKind::Rsa,
            KeyForm::Curve(key) => key.kind,
        }
    }

    /// Length of a signature in bytes: the modulus for RSA, r and s for a curve.
    pub fn signature_len(&self) -> usize {
        match &self.0.form {
            KeyForm::Rsa(key) => key.len(),
            KeyForm::Curve(key) => key.signature_len(),
        }
    }

    /// The public values.
    pub fn values(&self) -> PublicValues<'_> {
        match &self.0.form {
            KeyForm::Rsa(key) => PublicValues::Rsa {
                modulus: key.modulus(),
                exponent: key.exponent(),
            },
            KeyForm::Curve(key) => PublicValues::Point(&key.point),
        }
    }

    /// CKA_CLASS, CKA_KEY_TYPE and the public values, as a template for C_CreateObject.
    pub fn to_attributes(&self) -> Attributes {
        let class = Attributes::default().with_number(ck::CKA_CLASS, Class::PUBLIC_KEY.0);
        match &self.0.form {
            KeyForm::Rsa(key) => class
                .with_number(ck::CKA_KEY_TYPE, ck::CKK_RSA)
                .with_number(ck::CKA_MODULUS_BITS, key.bits() as u64)
                .with(ck::CKA_MODULUS, key.modulus())
                .with(ck::CKA_PUBLIC_EXPONENT, key.exponent()),
            KeyForm::Curve(key) => class
                .with_number(ck::CKA_KEY_TYPE, key_type(key.kind))
                .with(ck::CKA_EC_PARAMS, key.params.clone())
                .with(
                    ck::CKA_EC_POINT,
                    crate::der::tlv(der::Tag::OctetString, &[&key.point]),
                ),
        }
    }

    /// Checks a signature by any sign mechanism of the table that an asymmetric key has.
    ///
    /// CKR_SIGNATURE_INVALID and CKR_SIGNATURE_LEN_RANGE are the answers to a bad signature; other
    /// errors say that the mechanism, its parameter or the data do not fit the key.
    pub fn verify(&self, mechanism: &Mechanism, data: &[u8], signature: &[u8]) -> Result<()> {
        if let Some((hash, raw)) = prehash(mechanism) {
            let digest = crate::digest(hash, data);
            return self.verify(&raw, &prehashed_input(hash, &raw, &digest), signature);
        }
        match &self.0.form {
            KeyForm::Rsa(key) => key.verify(mechanism, data, signature),
            KeyForm::Curve(key) => key.verifier()?.verify(mechanism, data, signature),
        }
    }

    /// The bytes of salt in an RSA signature of CKM_RSA_PKCS_PSS, whatever the parameter says of them; `None` where
    /// it has no such form.
    pub fn salt(&self, params: &Pss, signature: &[u8]) -> Result<Option<u64>> {
        self.as_rsa("C_Verify")?.salt(params, signature)
    }

    /// The data that an RSA signature was made of (C_VerifyRecover).
    pub fn verify_recover(&self, mechanism: &Mechanism, signature: &[u8]) -> Result<Vec<u8>> {
        self.as_rsa("C_VerifyRecover")?
            .verify_recover(mechanism, signature)
    }

    /// Enciphers by CKM_RSA_PKCS, CKM_RSA_PKCS_OAEP or CKM_RSA_X_509.
    pub fn encrypt(&self, mechanism: &Mechanism, data: &[u8]) -> Result<Vec<u8>> {
        self.as_rsa("C_Encrypt")?.encrypt(mechanism, data)
    }

    /// Agrees on a secret with this key by a new ephemeral one (ECDH, SP 800-56A): what the owner of
    /// the private key derives from the ephemeral public point by CKM_ECDH1_DERIVE with CKD_NULL.
    pub fn agree(&self) -> Result<Agreement> {
        let KeyForm::Curve(key) = &self.0.form else {
            let code = ck::CKR_KEY_TYPE_INCONSISTENT;
            return Err(Error::vendor("C_DeriveKey", code));
        };
        let mut random = vec![0; key.bits.div_ceil(8)];
        rsa::random(&mut random)?;
        key.verifier()?.agree(&random)
    }

    fn as_rsa(&self, call: &str) -> Result<&rsa::RsaKey> {
        match &self.0.form {
            KeyForm::Rsa(key) => Ok(key),
            KeyForm::Curve(_) => Err(Error::vendor(call, ck::CKR_KEY_TYPE_INCONSISTENT)),
        }
    }

    fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<Self> {
        let key = rsa::RsaKey::new(modulus, exponent)?;
        let spki = rsa_spki(&key).map_err(|e| malformed("RSAPublicKey", e))?;
        Ok(Self(Arc::new(KeyInner {
            spki,
            form: KeyForm::Rsa(key),
        })))
    }

    fn on_curve(kind: KeyKind, params: &[u8], point: &[u8]) -> Result<Self> {
        let key = curve::CurveKey::new(kind, params, point)?;
        let spki = curve_spki(&key).map_err(|e| malformed("CKA_EC_PARAMS", e))?;
        Ok(Self(Arc::new(KeyInner {
            spki,
            form: KeyForm::Curve(key),
        })))
    }
}

fn rsa_spki(key: &rsa::RsaKey) -> der::Result<Vec<u8>> {
    let (modulus, exponent) = (key.modulus(), key.exponent());
    let body = RsaPublicKey {
        modulus: UintRef::new(&modulus)?,
        public_exponent: UintRef::new(&exponent)?,
    }
    .to_der()?;
    encoded(
        RSA_ENCRYPTION,
        Some(Any::null()),
        BitStringRef::from_bytes(&body)?,
    )
}

fn curve_spki(key: &curve::CurveKey) -> der::Result<Vec<u8>> {
    let params = Any::from_der(&key.params)?;
    let (oid, parameters) = match key.kind {
        KeyKind::Ec => (EC_PUBLIC_KEY, Some(params)),
        // RFC 8410, section 3: the OID names the curve, and there are no parameters.
        _ => (params.decode_as()?, None),
    };
    encoded(oid, parameters, key.subject_public_key()?)
}

fn encoded(
    oid: ObjectIdentifier,
    parameters: Option<Any>,
    key: BitStringRef<'_>,
) -> der::Result<Vec<u8>> {
    SubjectPublicKeyInfo {
        algorithm: AlgorithmIdentifier { oid, parameters },
        subject_public_key: key,
    }
    .to_der()
}

fn edwards_or_montgomery(oid: ObjectIdentifier) -> Result<KeyKind> {
    // RFC 8410, section 3: id-X25519, id-X448, id-Ed25519, id-Ed448.
    match oid.to_string().as_str() {
        "1.3.101.110" | "1.3.101.111" => Ok(KeyKind::Montgomery),
        "1.3.101.112" | "1.3.101.113" => Ok(KeyKind::Edwards),
        other => Err(Error::request(
            Kind::Unsupported,
            format!("public keys of algorithm {other} are not known here"),
        )),
    }
}

const fn key_type(kind: KeyKind) -> u64 {
    match kind {
        KeyKind::Edwards => ck::CKK_EC_EDWARDS,
        KeyKind::Montgomery => ck::CKK_EC_MONTGOMERY,
        _ => ck::CKK_EC,
    }
}

fn malformed(what: &str, error: der::Error) -> Error {
    Error::request(Kind::Invalid, format!("{what}: {error}"))
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.spki() == other.spki()
    }
}

impl Eq for PublicKey {}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({:?}, {} bits)", self.kind(), self.bits())
    }
}
