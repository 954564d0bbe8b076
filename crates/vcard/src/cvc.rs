//! Card verifiable certificates and requests (BSI TR-03110, part 3, appendix C.1 and C.2).

use hsmux_smartcard::tlv::{self, Tlv, tlv};
use hsmux_token::Hash;
use num_bigint::BigUint;
use sha2::{Digest, Sha256};

use crate::crypto::curve::{self, Curve};
use crate::crypto::ec::EcKey;
use crate::crypto::padding;
use crate::key::CardKey;

/// id-TA-RSA-v1-5-SHA-256 (0.4.0.127.0.7.2.2.2.1.2).
pub const RSA_SHA256: &[u8] = &[4, 0, 0x7F, 0, 7, 2, 2, 2, 1, 2];
/// id-TA-ECDSA-SHA-256 (0.4.0.127.0.7.2.2.2.2.3).
pub const ECDSA_SHA256: &[u8] = &[4, 0, 0x7F, 0, 7, 2, 2, 2, 2, 3];

/// The issuer of virtual cards; country and mnemonic say that it is insecure.
const ISSUER: &str = "XXNOSECURE00001";
/// Default inner reference of requests, as in OpenSC.
pub const NO_AUTHORITY: &str = "UTCA00001";

const CERTIFICATE: u32 = 0x7F21;
const BODY: u32 = 0x7F4E;
const PROFILE: u32 = 0x5F29;
const AUTHORITY: u32 = 0x42;
const PUBLIC_KEY: u32 = 0x7F49;
const HOLDER: u32 = 0x5F20;
const SIGNATURE: u32 = 0x5F37;
const REQUEST: u32 = 0x67;

/// The host's data for GENERATE ASYMMETRIC KEY PAIR.
pub struct KeyTemplate<'a> {
    /// The inner certification authority reference.
    pub authority: &'a [u8],
    /// The holder reference.
    pub holder: &'a [u8],
    /// The public-key algorithm's OID, which also selects the request's signature.
    pub oid: &'a [u8],
    /// The kind of key.
    pub parameters: Parameters,
}

/// Size or curve of the new key.
pub enum Parameters {
    /// Bits of the modulus, and the public exponent.
    Rsa(usize, BigUint),
    /// The curve.
    Ec(&'static Curve),
}

impl<'a> KeyTemplate<'a> {
    /// Parses the command's data: the fields of a certificate's body without its tag.
    pub fn parse(body: &'a [u8], holder: &'a [u8]) -> Option<Self> {
        let text = |tag, missing| tlv::find(body, tag).map_or(missing, |field| field.value);
        let key = tlv::find(body, PUBLIC_KEY).ok()?;
        Some(Self {
            authority: text(AUTHORITY, NO_AUTHORITY.as_bytes()),
            holder: text(HOLDER, holder),
            oid: key.child(0x06).ok()?.value,
            parameters: parameters(&key)?,
        })
    }

    /// The request for this key, signed by the key itself, and by the device's key around that.
    pub fn request(&self, key: &CardKey, device: &EcKey, serial: &str) -> Option<Vec<u8>> {
        let public = public_key(key, self.oid)?;
        let body = body(self.authority, &public, self.holder, &[]);
        let signature = sign(key, self.oid, &body)?;
        let certificate = tlv(CERTIFICATE, &[&body, &tlv(SIGNATURE, &[&signature])]);
        let outer = tlv(AUTHORITY, &[holder(serial).as_bytes()]);
        let signed = [certificate, outer].concat();
        let signature = device.sign_plain(&Sha256::digest(&signed));
        Some(tlv(REQUEST, &[&signed, &tlv(SIGNATURE, &[&signature])]))
    }
}

/// The holder reference of a device: its serial number and five digits.
pub fn holder(serial: &str) -> String {
    format!("{serial}00001")
}

/// EF.C_DevAut: the certificates of the device and of its issuer, whose private key is public knowledge.
pub fn device_chain(device: &EcKey, serial: &str) -> Option<Vec<u8>> {
    let seed = Sha256::digest(b"hsmux virtual card issuer: protects nothing");
    let curve = device.curve;
    let issuer = EcKey::new(curve, BigUint::from_bytes_be(&seed) % &curve.n)?;
    let certificate = |key: &EcKey, name: &str, role: u8| {
        let key = ec_public_key(key, ECDSA_SHA256);
        let body = body(ISSUER.as_bytes(), &key, name.as_bytes(), &validity(role));
        let signature = issuer.sign_plain(&Sha256::digest(&body));
        tlv(CERTIFICATE, &[&body, &tlv(SIGNATURE, &[&signature])])
    };
    let device = certificate(device, &holder(serial), 0x00);
    Some([device, certificate(&issuer, ISSUER, 0xC0)].concat())
}

/// Role of the holder (C0: an authority, 00: a device) and dates from 2026-01-01 to 2099-12-31.
fn validity(role: u8) -> Vec<u8> {
    // 1.3.6.1.4.1.24991.3.1.1: a SmartCard-HSM's certificate holder authorization.
    const TYPE: &[u8] = &[0x2B, 6, 1, 4, 1, 0x81, 0xC3, 0x1F, 3, 1, 1];
    let authorization = tlv(0x7F4C, &[&tlv(0x06, &[TYPE]), &tlv(0x53, &[&[role]])]);
    let effective = tlv(0x5F25, &[&[2, 6, 0, 1, 0, 1]]);
    let expiration = tlv(0x5F24, &[&[9, 9, 1, 2, 3, 1]]);
    [authorization, effective, expiration].concat()
}

fn body(authority: &[u8], public: &[u8], holder: &[u8], rest: &[u8]) -> Vec<u8> {
    let profile = tlv(PROFILE, &[&[0]]);
    let authority = tlv(AUTHORITY, &[authority]);
    let holder = tlv(HOLDER, &[holder]);
    tlv(BODY, &[&profile, &authority, public, &holder, rest])
}

fn parameters(key: &Tlv) -> Option<Parameters> {
    let field = |tag| key.child(tag).ok().map(|field| field.value);
    if let Some(bits) = field(0x02) {
        let bits = bits.iter().try_fold(0usize, |bits, byte| {
            bits.checked_mul(256)?.checked_add(usize::from(*byte))
        })?;
        let e = field(0x82).map_or(65_537u32.into(), BigUint::from_bytes_be);
        return Some(Parameters::Rsa(bits, e));
    }
    let number = |tag| field(tag).unwrap_or_default();
    let curve = curve::with(number(0x81), number(0x82), number(0x83))?;
    let agrees = |(number, tag)| field(tag).is_none_or(|value| value == number);
    let [_, _, _, g, n] = curve.parameters();
    let given = [(g, 0x84), (n, 0x85)];
    given
        .into_iter()
        .all(agrees)
        .then_some(Parameters::Ec(curve))
}

fn public_key(key: &CardKey, oid: &[u8]) -> Option<Vec<u8>> {
    match key {
        CardKey::Rsa(key) => {
            let oid = tlv(0x06, &[oid]);
            let n = tlv(0x81, &[&key.n.to_bytes_be()]);
            Some(tlv(
                PUBLIC_KEY,
                &[&oid, &n, &tlv(0x82, &[&key.e.to_bytes_be()])],
            ))
        }
        CardKey::Ec(key) => Some(ec_public_key(key, oid)),
        CardKey::Aes(_) => None,
    }
}

fn ec_public_key(key: &EcKey, oid: &[u8]) -> Vec<u8> {
    let parameters = key.curve.parameters();
    let domain = (0x81..)
        .zip(parameters)
        .flat_map(|(tag, value)| tlv(tag, &[value]));
    let domain: Vec<u8> = domain.collect();
    let point = tlv(0x86, &[&key.q]);
    tlv(
        PUBLIC_KEY,
        &[&tlv(0x06, &[oid]), &domain, &point, &tlv(0x87, &[&[1]])],
    )
}

/// Signs as the OID says, which must fit the key.
fn sign(key: &CardKey, oid: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let (family, hash) = oid.split_at_checked(oid.len().checked_sub(1)?)?;
    match (key, hash[0]) {
        (CardKey::Rsa(key), number @ 1..=2) if RSA_SHA256.starts_with(family) => {
            let hash = [Hash::Sha1, Hash::Sha256][usize::from(number) - 1];
            let digest = hsmux_software::digest(hash, data);
            let info = [hash.digest_info_prefix(), &digest].concat();
            key.private(&padding::pkcs1(&info, key.len())?)
        }
        (CardKey::Ec(key), number @ 1..=5) if ECDSA_SHA256.starts_with(family) => {
            let hash = padding::HASHES[usize::from(number) - 1];
            Some(key.sign_plain(&hsmux_software::digest(hash, data)))
        }
        _ => None,
    }
}
