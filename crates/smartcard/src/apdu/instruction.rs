//! Instruction bytes of a SmartCard-HSM: with class 00 those of ISO/IEC 7816-4 and 7816-8, with class 80 its own.

/// VERIFY a PIN, or ask for its state. Class 00.
pub const VERIFY: u8 = 0x20;
/// MANAGE SECURITY ENVIRONMENT. Class 00.
pub const MANAGE_SECURITY_ENVIRONMENT: u8 = 0x22;
/// CHANGE REFERENCE DATA: a new PIN for an old one. Class 00.
pub const CHANGE_REFERENCE_DATA: u8 = 0x24;
/// PERFORM SECURITY OPERATION: verify a certificate. Class 00.
pub const PERFORM_SECURITY_OPERATION: u8 = 0x2A;
/// RESET RETRY COUNTER. Class 00.
pub const RESET_RETRY_COUNTER: u8 = 0x2C;
/// GENERATE ASYMMETRIC KEY PAIR. Class 00.
pub const GENERATE_KEY_PAIR: u8 = 0x46;
/// GENERATE SYMMETRIC KEY. Class 00.
pub const GENERATE_KEY: u8 = 0x48;
/// INITIALIZE DEVICE. Class 80.
pub const INITIALIZE: u8 = 0x50;
/// DKEK status, or import of a share. Class 80.
pub const IMPORT_DKEK: u8 = 0x52;
/// Public-key authentication. Class 80.
pub const MANAGE_PUBLIC_KEY_AUTHENTICATION: u8 = 0x54;
/// ENUMERATE OBJECTS. Class 80.
pub const ENUMERATE_OBJECTS: u8 = 0x58;
/// DECIPHER: RSA, or ECDH. Class 80.
pub const DECIPHER: u8 = 0x62;
/// SIGN. Class 80.
pub const SIGN: u8 = 0x68;
/// WRAP KEY. Class 80.
pub const WRAP_KEY: u8 = 0x72;
/// UNWRAP KEY. Class 80.
pub const UNWRAP_KEY: u8 = 0x74;
/// DERIVE an EC key from another. Class 80.
pub const DERIVE_EC_KEY: u8 = 0x76;
/// DECIPHER, ENCIPHER, MAC and derive with a symmetric key. Class 80.
pub const SYMMETRIC: u8 = 0x78;
/// GET CHALLENGE: random bytes. Class 00.
pub const GET_CHALLENGE: u8 = 0x84;
/// SELECT. Class 00.
pub const SELECT: u8 = 0xA4;
/// READ BINARY, with the offset in a data object. Class 00.
pub const READ_BINARY: u8 = 0xB1;
/// GET RESPONSE: what did not fit into the last response. Class 00.
pub const GET_RESPONSE: u8 = 0xC0;
/// UPDATE BINARY, with the offset in a data object. Class 00.
pub const UPDATE_BINARY: u8 = 0xD7;
/// DELETE FILE. Class 00.
pub const DELETE_FILE: u8 = 0xE4;
