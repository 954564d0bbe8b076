//! Tags inside certificates and requests (TR-03110-3, appendix D.2 and D.3).

/// A certificate: body and signature.
pub const CERTIFICATE: u32 = 0x7F21;
/// The body of a certificate: what is signed.
pub const BODY: u32 = 0x7F4E;
/// Certificate profile identifier: 0.
pub const PROFILE: u32 = 0x5F29;
/// Certification authority reference: whose key signed this.
pub const AUTHORITY: u32 = 0x42;
/// Certificate holder reference: whose key this is.
pub const HOLDER: u32 = 0x5F20;
/// The public key.
pub const PUBLIC_KEY: u32 = 0x7F49;
/// A signature.
pub const SIGNATURE: u32 = 0x5F37;
/// A request: certificate, authority and outer signature.
pub const REQUEST: u32 = 0x67;
/// In a public key: the algorithm that it signs with.
pub const OBJECT_IDENTIFIER: u32 = 0x06;
/// In what a key is to be: the size of the modulus.
pub const INTEGER: u32 = 0x02;
/// RSA: n.
pub const MODULUS: u32 = 0x81;
/// RSA: e.
pub const EXPONENT: u32 = 0x82;
/// EC: p.
pub const PRIME: u32 = 0x81;
/// EC: a.
pub const COEFFICIENT_A: u32 = 0x82;
/// EC: b.
pub const COEFFICIENT_B: u32 = 0x83;
/// EC: the generator.
pub const GENERATOR: u32 = 0x84;
/// EC: the generator's order.
pub const ORDER: u32 = 0x85;
/// EC: the public point.
pub const PUBLIC_POINT: u32 = 0x86;
/// EC: the cofactor.
pub const COFACTOR: u32 = 0x87;
