//! Public keys on curves: which curve, where on it, and what can be computed there.

use der::asn1::{BitStringRef, ObjectIdentifier};
use der::{Decode, Encode, Tag};
use hsmux_token::{Error, KeyKind, Kind, Mechanism, Result};

use crate::{ec, edwards};

/// A point on a curve; the curve may be one whose arithmetic is not here, then the key still has a name.
pub struct CurveKey {
    /// Ec, Edwards or Montgomery.
    pub kind: KeyKind,
    /// The DER of CKA_EC_PARAMS: the OID of the curve, or explicit parameters.
    pub params: Vec<u8>,
    /// The point, bare: uncompressed for a known curve, as it came for another.
    pub point: Vec<u8>,
    /// The size of the curve's field.
    pub bits: usize,
    name: String,
    verifier: Option<Box<dyn SignatureVerifier>>,
}

/// Checks signatures by one public key.
pub trait SignatureVerifier: Send + Sync {
    /// With a mechanism that does not hash, and its parameter.
    fn verify(&self, mechanism: &Mechanism, data: &[u8], signature: &[u8]) -> Result<()>;
    /// In bytes.
    fn signature_len(&self) -> usize;
    /// ECDH with an ephemeral key made of these random bytes, as many as the curve's field has.
    fn agree(&self, _random: &[u8]) -> Result<Agreement> {
        Err(Error::request(
            Kind::Unsupported,
            "no key agreement with a key of this kind",
        ))
    }
}

/// The result of an agreement between an ephemeral key and a public key (SP 800-56A, section 5.7.1.2).
pub struct Agreement {
    /// The ephemeral public point, uncompressed and bare.
    pub public: Vec<u8>,
    /// The x-coordinate of the shared point.
    pub secret: Vec<u8>,
}

/// A point that lies on its curve.
pub struct DecodedPoint {
    /// The encoding that the key is named by.
    pub canonical: Vec<u8>,
    pub verifier: Box<dyn SignatureVerifier>,
}

impl CurveKey {
    /// From CKA_EC_PARAMS (an OID, a curve's name, or explicit parameters) and CKA_EC_POINT (bare,
    /// or inside an OCTET STRING or BIT STRING: tokens do all three).
    pub fn new(kind: KeyKind, params: &[u8], point: &[u8]) -> Result<Self> {
        let curve = curve(kind, params);
        let Some(CurveEntry {
            oid,
            bits,
            decode: Some(decode),
            name,
            ..
        }) = curve
        else {
            return Ok(Self::without_arithmetic(kind, curve, params, point));
        };
        let decoded = unwrapped(point)
            .and_then(decode)
            .or_else(|| decode(point))
            .ok_or_else(|| {
                Error::request(
                    Kind::Invalid,
                    format!("CKA_EC_POINT: not a point of {name}"),
                )
            })?;
        Ok(Self {
            kind,
            params: oid_der(*oid),
            point: decoded.canonical,
            bits: *bits,
            name: (*name).to_owned(),
            verifier: Some(decoded.verifier),
        })
    }

    fn without_arithmetic(
        kind: KeyKind,
        curve: Option<&CurveEntry>,
        params: &[u8],
        point: &[u8],
    ) -> Self {
        let whole = curve.is_some_and(|curve| curve.encodes_in(point.len()));
        let inside = unwrapped(point).filter(|inside| !whole && plausible(kind, inside));
        let point = inside.unwrap_or(point).to_vec();
        // 04, x and y on a Weierstrass curve; one coordinate on the others.
        let bits = match kind {
            KeyKind::Ec => point.len().saturating_sub(1) / 2 * 8,
            _ => point.len() * 8,
        };
        let name = name(curve, params);
        Self {
            kind,
            params: curve.map_or_else(|| params.to_vec(), |curve| oid_der(curve.oid)),
            point,
            bits: curve.map_or(bits, |curve| curve.bits),
            name,
            verifier: None,
        }
    }

    /// The curve's name; of one that is not known here the error says what the key calls it.
    pub fn curve(&self) -> Result<&'static str> {
        let known = curve(self.kind, &self.params).map(|curve| curve.name);
        known.ok_or_else(|| {
            Error::request(
                Kind::Unsupported,
                format!("the curve {} is not known here", self.name),
            )
        })
    }

    /// Checks a signature; where the curve has no arithmetic here, the error names it.
    pub fn verifier(&self) -> Result<&dyn SignatureVerifier> {
        self.verifier.as_deref().ok_or_else(|| {
            Error::request(
                Kind::Unsupported,
                format!("C_Verify: the curve {} has no arithmetic here", self.name),
            )
        })
    }

    /// The name of its curve, if that has no arithmetic here.
    pub fn without_verifier(&self) -> Option<&str> {
        self.verifier.is_none().then_some(&self.name)
    }

    /// In bytes; for a curve without arithmetic as long as its field says.
    pub fn signature_len(&self) -> usize {
        match &self.verifier {
            Some(verifier) => verifier.signature_len(),
            None => 2 * self.bits.div_ceil(8),
        }
    }

    /// The BIT STRING of the SubjectPublicKeyInfo (RFC 5480, section 2.2; RFC 8410, section 4).
    pub fn subject_public_key(&self) -> der::Result<BitStringRef<'_>> {
        BitStringRef::from_bytes(&self.point)
    }
}

/// The name of the curve of CKA_EC_PARAMS, if it has no arithmetic here.
pub fn without_arithmetic(kind: KeyKind, params: &[u8]) -> Option<String> {
    let curve = curve(kind, params);
    match curve.and_then(|curve| curve.decode) {
        Some(_) => None,
        None => Some(name(curve, params)),
    }
}

fn name(curve: Option<&CurveEntry>, params: &[u8]) -> String {
    match (curve, <ObjectIdentifier>::from_der(params)) {
        (Some(curve), _) => curve.name.to_owned(),
        (None, Ok(oid)) => oid.to_string(),
        (None, Err(_)) => "with explicit parameters".to_owned(),
    }
}

/// True if these octets may be a point of an unknown curve (SEC 1, section 2.3.3).
fn plausible(kind: KeyKind, point: &[u8]) -> bool {
    kind != KeyKind::Ec || matches!(point.first(), Some(2..=4))
}

/// The content of a DER OCTET STRING or BIT STRING.
fn unwrapped(point: &[u8]) -> Option<&[u8]> {
    crate::der::content(point, Tag::OctetString).or_else(|| {
        // The first octet of a BIT STRING counts unused bits.
        crate::der::content(point, Tag::BitString)?.strip_prefix(&[0])
    })
}

fn oid_der(oid: ObjectIdentifier) -> Vec<u8> {
    oid.to_der().unwrap_or_default()
}

/// A point in its encoding, if it lies on the curve.
type DecodePoint = fn(&[u8]) -> Option<DecodedPoint>;

struct CurveEntry {
    kind: KeyKind,
    name: &'static str,
    aliases: &'static [&'static str],
    oid: ObjectIdentifier,
    bits: usize,
    decode: Option<DecodePoint>,
}

impl CurveEntry {
    /// True if a bare point has this length: one in 256 looks like an OCTET STRING by its first octets.
    fn encodes_in(&self, len: usize) -> bool {
        let field = self.bits.div_ceil(8);
        match self.kind {
            KeyKind::Ec => len == 1 + 2 * field,
            // Ed448 has one bit more than octets (RFC 8032, section 5.2.2).
            _ => (field..=field + 1).contains(&len),
        }
    }
}

fn curve(kind: KeyKind, params: &[u8]) -> Option<&'static CurveEntry> {
    let of_kind = || CURVES.iter().filter(|curve| curve.kind == kind);
    if let Ok(oid) = ObjectIdentifier::from_der(params) {
        return of_kind().find(|curve| curve.oid == oid);
    }
    let name = crate::der::content(params, Tag::PrintableString)?;
    let name = std::str::from_utf8(name).ok()?;
    of_kind().find(|curve| curve.name == name || curve.aliases.contains(&name))
}

macro_rules! curves {
    ($($kind:ident $name:literal [$($alias:literal)*] $oid:literal $bits:literal $($decode:expr)?;)*) => {
        static CURVES: &[CurveEntry] = &[$(CurveEntry {
            kind: KeyKind::$kind,
            name: $name,
            aliases: &[$($alias),*],
            oid: ObjectIdentifier::new_unwrap($oid),
            bits: $bits,
            decode: curves!(@some $($decode)?),
        },)*];
    };
    (@some $decode:expr) => { Some($decode) };
    (@some) => { None };
}

curves! {
    Ec "P-224" ["secp224r1"] "1.3.132.0.33" 224 ec::decode::<p224::NistP224>;
    Ec "P-256" ["secp256r1" "prime256v1"] "1.2.840.10045.3.1.7" 256 ec::decode::<p256::NistP256>;
    Ec "P-384" ["secp384r1"] "1.3.132.0.34" 384 ec::decode::<p384::NistP384>;
    Ec "P-521" ["secp521r1"] "1.3.132.0.35" 521 ec::decode::<p521::NistP521>;
    Ec "secp256k1" [] "1.3.132.0.10" 256 ec::decode::<k256::Secp256k1>;
    Ec "brainpoolP256r1" [] "1.3.36.3.3.2.8.1.1.7" 256 ec::decode::<bp256::BrainpoolP256r1>;
    Ec "brainpoolP256t1" [] "1.3.36.3.3.2.8.1.1.8" 256 ec::decode::<bp256::BrainpoolP256t1>;
    Ec "brainpoolP384r1" [] "1.3.36.3.3.2.8.1.1.11" 384 ec::decode::<bp384::BrainpoolP384r1>;
    Ec "brainpoolP384t1" [] "1.3.36.3.3.2.8.1.1.12" 384 ec::decode::<bp384::BrainpoolP384t1>;
    Ec "P-192" ["secp192r1" "prime192v1"] "1.2.840.10045.3.1.1" 192;
    Ec "secp192k1" [] "1.3.132.0.31" 192;
    Ec "brainpoolP192r1" [] "1.3.36.3.3.2.8.1.1.3" 192;
    Ec "brainpoolP192t1" [] "1.3.36.3.3.2.8.1.1.4" 192;
    Ec "brainpoolP224r1" [] "1.3.36.3.3.2.8.1.1.5" 224;
    Ec "brainpoolP224t1" [] "1.3.36.3.3.2.8.1.1.6" 224;
    Ec "brainpoolP320r1" [] "1.3.36.3.3.2.8.1.1.9" 320;
    Ec "brainpoolP320t1" [] "1.3.36.3.3.2.8.1.1.10" 320;
    Ec "brainpoolP512r1" [] "1.3.36.3.3.2.8.1.1.13" 512;
    Ec "brainpoolP512t1" [] "1.3.36.3.3.2.8.1.1.14" 512;
    Edwards "Ed25519" ["edwards25519"] "1.3.101.112" 255 edwards::decode;
    Edwards "Ed448" ["edwards448"] "1.3.101.113" 448;
    Montgomery "X25519" ["curve25519"] "1.3.101.110" 255;
    Montgomery "X448" ["curve448"] "1.3.101.111" 448;
}
