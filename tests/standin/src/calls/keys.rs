//! Uses of keys: one form for every verb.

use hsmux_token::ck::*;
use hsmux_token::{Hash, Verb};
use sha2::{Digest, Sha256};

use super::general::CKM_VENDORS_ECDSA_SHA256;
use super::{code, input, put_list};
use crate::control::{ControlFile, TokenControl};
use crate::keys::{MlDsa, TokenKeys};
use crate::objects::{AES, EC, ML_DSA, ML_DSA_PUBLIC, RSA};
use crate::world::{Active, World};

/// The two calls of a verb.
macro_rules! verb {
    ($verb:expr, $init:ident, $run:ident) => {
        pub unsafe extern "C" fn $init(
            session: CK_SESSION_HANDLE,
            mechanism: *mut CK_MECHANISM,
            key: CK_OBJECT_HANDLE,
        ) -> CK_RV {
            // SAFETY: the standard's promise.
            code(unsafe { init($verb, session, mechanism, key) })
        }

        pub unsafe extern "C" fn $run(
            session: CK_SESSION_HANDLE,
            data: *mut u8,
            data_len: CK_ULONG,
            place: *mut u8,
            len: *mut CK_ULONG,
        ) -> CK_RV {
            // SAFETY: the standard's promise.
            code(unsafe { input(data, data_len).and_then(|d| run($verb, session, d, place, len)) })
        }
    };
}

verb!(Verb::Sign, C_SignInit, C_Sign);
verb!(Verb::Encrypt, C_EncryptInit, C_Encrypt);
verb!(Verb::Decrypt, C_DecryptInit, C_Decrypt);

pub unsafe extern "C" fn C_VerifyInit(
    session: CK_SESSION_HANDLE,
    mechanism: *mut CK_MECHANISM,
    key: CK_OBJECT_HANDLE,
) -> CK_RV {
    // SAFETY: the standard's promise.
    code(unsafe { init(Verb::Verify, session, mechanism, key) })
}

pub unsafe extern "C" fn C_Verify(
    session: CK_SESSION_HANDLE,
    data: *mut u8,
    data_len: CK_ULONG,
    signature: *mut u8,
    signature_len: CK_ULONG,
) -> CK_RV {
    let verify = || {
        // SAFETY: the standard's promise.
        let data = unsafe { input(data, data_len) }?;
        // SAFETY: the standard's promise.
        let signature = unsafe { input(signature, signature_len) }?;
        let control = ControlFile::now()?;
        let slot = World::with(|world| {
            let session = world.session(session)?;
            let active = session.active.take_if(|active| active.verb == Verb::Verify);
            active.ok_or(CKR_OPERATION_NOT_INITIALIZED)?;
            Ok(session.slot)
        })?;
        let token = control.token(slot).map_err(|_| CKR_DEVICE_REMOVED)?;
        match signature == TokenKeys::of(token.key_seed).ml_dsa.sign(data) {
            true => Ok(()),
            false if signature.len() == MlDsa::SIGNATURE => Err(CKR_SIGNATURE_INVALID),
            false => Err(CKR_SIGNATURE_LEN_RANGE),
        }
    };
    code(verify())
}

pub unsafe extern "C" fn C_GenerateRandom(
    session: CK_SESSION_HANDLE,
    place: *mut u8,
    len: CK_ULONG,
) -> CK_RV {
    let fill = || {
        World::with_session(session, |_, _| Ok(()))?;
        let mut bytes = vec![0; len as usize];
        getrandom::fill(&mut bytes).map_err(|_| CKR_RANDOM_NO_RNG)?;
        let mut room = len;
        // SAFETY: the standard's promise.
        unsafe { put_list(&bytes, place, &raw mut room) }
    };
    code(fill())
}

/// # Safety
/// `mechanism` is null, or a mechanism with its parameter.
unsafe fn init(
    verb: Verb,
    session: CK_SESSION_HANDLE,
    mechanism: *mut CK_MECHANISM,
    key: CK_OBJECT_HANDLE,
) -> Result<(), CK_RV> {
    // SAFETY: the caller's promise.
    let mechanism = unsafe { mechanism.as_ref() }.ok_or(CKR_ARGUMENTS_BAD)?;
    // SAFETY: the caller's promise.
    let params = unsafe { input(mechanism.pParameter.cast(), mechanism.ulParameterLen) }?;
    let kind = mechanism.mechanism;
    let kind = match kind {
        CKM_VENDORS_ECDSA_SHA256 => CKM_ECDSA_SHA256,
        kind => kind,
    };
    let (name, iv) = match (verb, kind) {
        (Verb::Sign, CKM_RSA_PKCS | CKM_SHA256_RSA_PKCS) | (Verb::Decrypt, CKM_RSA_PKCS) => {
            (("rsa", RSA), [0; 16])
        }
        (Verb::Sign, CKM_ECDSA | CKM_ECDSA_SHA256) => (("ec", EC), [0; 16]),
        (Verb::Sign, CKM_ML_DSA) => (("ml-dsa", ML_DSA), [0; 16]),
        (Verb::Verify, CKM_ML_DSA) => (("ml-dsa", ML_DSA_PUBLIC), [0; 16]),
        (Verb::Encrypt | Verb::Decrypt, CKM_AES_ECB) => (("aes", AES), [0; 16]),
        (Verb::Encrypt | Verb::Decrypt, CKM_AES_CBC | CKM_AES_CBC_PAD) => {
            let iv = params.try_into().map_err(|_| CKR_MECHANISM_PARAM_INVALID)?;
            (("aes", AES), iv)
        }
        _ => return Err(CKR_MECHANISM_INVALID),
    };
    logged_in(session)?;
    World::with_session(session, |session, token| {
        if token.init_error != CKR_OK {
            return Err(token.init_error);
        }
        if session.active.is_some() {
            return Err(CKR_OPERATION_ACTIVE);
        }
        if !(1..=ML_DSA).contains(&key) || (key == name.1 && !token.holds(name.0)) {
            return Err(token.dead_handle_error);
        }
        if key != name.1 {
            return Err(CKR_KEY_TYPE_INCONSISTENT);
        }
        if token.always_authenticate && key == EC {
            return Err(CKR_USER_NOT_LOGGED_IN);
        }
        session.active = Some(Active {
            verb,
            mechanism: kind,
            iv,
            key,
        });
        Ok(())
    })
}

fn logged_in(session: CK_SESSION_HANDLE) -> Result<(), CK_RV> {
    World::with(|world| {
        let slot = world.session(session)?.slot;
        world.user(slot).map(|_| ()).ok_or(CKR_USER_NOT_LOGGED_IN)
    })
}

/// # Safety
/// `len` is null or points to a number; `place` is null or has room for this number of bytes.
unsafe fn run(
    verb: Verb,
    session: CK_SESSION_HANDLE,
    data: &[u8],
    place: *mut u8,
    len: *mut CK_ULONG,
) -> Result<(), CK_RV> {
    let control = ControlFile::now()?;
    let (slot, active, device) = World::with(|world| {
        let session = world.session(session)?;
        let active = session.active.take_if(|active| active.verb == verb);
        let slot = session.slot;
        let active = active.ok_or(CKR_OPERATION_NOT_INITIALIZED)?;
        Ok((slot, active, world.device(slot)))
    })?;
    let token = control.token(slot).map_err(|_| CKR_DEVICE_REMOVED)?;
    // SAFETY: the caller's promise.
    let room = unsafe { len.as_ref() }.copied().ok_or(CKR_ARGUMENTS_BAD)?;
    let most = match active.mechanism {
        CKM_ECDSA | CKM_ECDSA_SHA256 => 64,
        CKM_RSA_PKCS | CKM_SHA256_RSA_PKCS => 256,
        CKM_ML_DSA => MlDsa::SIGNATURE,
        _ => data.len() + 16,
    }
    .max(token.least_buffer)
        + token.longer_by;
    if place.is_null() || (room as usize) < most {
        if place.is_null() || !token.small_buffer_ends_operation {
            World::with_session(session, |session, _| {
                session.active = Some(active);
                Ok(())
            })?;
        }
        // SAFETY: the caller's promise.
        unsafe { len.write(most as CK_ULONG) };
        return if place.is_null() {
            Ok(())
        } else {
            Err(CKR_BUFFER_TOO_SMALL)
        };
    }
    let answer = device.serve(slot, token, |number| {
        let mut answer = compute(&active, token, data)?;
        let every = token.wrong_signature_every;
        if verb == Verb::Sign && every > 0 && number.is_multiple_of(every) {
            answer[40] ^= 1;
        }
        answer.resize(answer.len() + token.longer_by, 0);
        Ok(answer)
    })?;
    // SAFETY: the caller's promise.
    unsafe { put_list(&answer, place, len) }
}

/// The operation itself.
fn compute(active: &Active, token: &TokenControl, data: &[u8]) -> Result<Vec<u8>, CK_RV> {
    let keys = TokenKeys::of(token.key_seed + u64::from(token.wrong_key));
    let (mechanism, iv) = (active.mechanism, active.iv);
    match (active.verb, active.key) {
        (Verb::Sign, EC) => {
            let hashed: [u8; 32];
            let digest = if mechanism == CKM_ECDSA_SHA256 {
                hashed = Sha256::digest(data).into();
                &hashed
            } else {
                data
            };
            let signature = match (token.fast_sign, digest.try_into()) {
                (true, Ok(digest)) => Some(keys.ec.sign_fast(digest)),
                _ => keys.ec.sign(digest),
            };
            signature.ok_or(CKR_DATA_LEN_RANGE)
        }
        (Verb::Sign, RSA) if mechanism == CKM_SHA256_RSA_PKCS => {
            let prefix = Hash::Sha256.digest_info_prefix();
            let info = [prefix, &Sha256::digest(data)].concat();
            keys.rsa.sign(&info).ok_or(CKR_DATA_LEN_RANGE)
        }
        (Verb::Sign, ML_DSA) => Ok(keys.ml_dsa.sign(data)),
        (Verb::Sign, RSA) => keys.rsa.sign(data).ok_or(CKR_DATA_LEN_RANGE),
        (Verb::Decrypt, RSA) => keys.rsa.decrypt(data).ok_or(CKR_ENCRYPTED_DATA_INVALID),
        (Verb::Encrypt, _) => keys.aes.encrypt(mechanism, iv, data),
        (Verb::Decrypt, _) => keys.aes.decrypt(mechanism, iv, data),
        _ => Err(CKR_FUNCTION_FAILED),
    }
}
