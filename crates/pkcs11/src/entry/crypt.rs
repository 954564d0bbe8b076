//! Cryptographic functions: a table for each shape.

#![allow(non_snake_case)]

use hsmux_token::Mechanism;
use hsmux_token::ck::*;

use super::guard::export;
use super::mechanism;
use super::pointer::{Output, slice};
use crate::crypt::Function;
use crate::library::in_session;
use crate::rv::Result;

/// Init with a key.
macro_rules! inits {
    ($($name:ident => $function:ident;)*) => {$(export! {
        fn $name(session: CK_SESSION_HANDLE, mechanism: *mut CK_MECHANISM, key: CK_OBJECT_HANDLE) {
            in_session(session, |app| app.begin(session, Function::$function, optional(mechanism)?, key))
        }
    })*};
}

inits! {
    C_EncryptInit => Encrypt;
    C_DecryptInit => Decrypt;
    C_SignInit => Sign;
    C_SignRecoverInit => SignRecover;
    C_VerifyInit => Verify;
    C_VerifyRecoverInit => VerifyRecover;
}

/// Data in, answer out: all at once, or the next part.
macro_rules! answers {
    ($($name:ident => $method:ident $function:ident;)*) => {$(export! {
        fn $name(
            session: CK_SESSION_HANDLE,
            data: *mut u8,
            data_len: CK_ULONG,
            answer: *mut u8,
            answer_len: *mut CK_ULONG,
        ) {
            in_session(session, |app| {
                let mut out = Output::new(answer, answer_len)?;
                app.$method(session, Function::$function, slice(data, data_len)?, &mut out)
            })
        }
    })*};
}

answers! {
    C_Digest => whole Digest;
    C_Encrypt => whole Encrypt;
    C_Decrypt => whole Decrypt;
    C_Sign => whole Sign;
    C_SignRecover => whole SignRecover;
    C_VerifyRecover => whole VerifyRecover;
    C_EncryptUpdate => update Encrypt;
    C_DecryptUpdate => update Decrypt;
}

/// Data in.
macro_rules! feeds {
    ($($name:ident => $function:ident;)*) => {$(export! {
        fn $name(session: CK_SESSION_HANDLE, part: *mut u8, len: CK_ULONG) {
            in_session(session, |app| app.feed(session, Function::$function, slice(part, len)?))
        }
    })*};
}

feeds! {
    C_DigestUpdate => Digest;
    C_SignUpdate => Sign;
    C_VerifyUpdate => Verify;
}

/// Answer out.
macro_rules! finals {
    ($($name:ident => $function:ident;)*) => {$(export! {
        fn $name(session: CK_SESSION_HANDLE, answer: *mut u8, answer_len: *mut CK_ULONG) {
            in_session(session, |app| app.finish(session, Function::$function, &mut Output::new(answer, answer_len)?))
        }
    })*};
}

finals! {
    C_DigestFinal => Digest;
    C_EncryptFinal => Encrypt;
    C_DecryptFinal => Decrypt;
    C_SignFinal => Sign;
}

/// Two operations on one text.
macro_rules! duals {
    ($($name:ident => $cipher:ident $other:ident;)*) => {$(export! {
        fn $name(
            session: CK_SESSION_HANDLE,
            part: *mut u8,
            part_len: CK_ULONG,
            answer: *mut u8,
            answer_len: *mut CK_ULONG,
        ) {
            in_session(session, |app| {
                let mut out = Output::new(answer, answer_len)?;
                let part = slice(part, part_len)?;
                app.dual(session, Function::$cipher, Function::$other, part, &mut out)
            })
        }
    })*};
}

duals! {
    C_DigestEncryptUpdate => Encrypt Digest;
    C_DecryptDigestUpdate => Decrypt Digest;
    C_SignEncryptUpdate => Encrypt Sign;
    C_DecryptVerifyUpdate => Decrypt Verify;
}

export! {
    fn C_DigestInit(session: CK_SESSION_HANDLE, mechanism: *mut CK_MECHANISM) {
        in_session(session, |app| app.begin(session, Function::Digest, optional(mechanism)?, 0))
    }

    fn C_DigestKey(session: CK_SESSION_HANDLE, key: CK_OBJECT_HANDLE) {
        in_session(session, |app| app.digest_key(session, key))
    }

    fn C_Verify(
        session: CK_SESSION_HANDLE,
        data: *mut u8,
        data_len: CK_ULONG,
        signature: *mut u8,
        signature_len: CK_ULONG,
    ) {
        in_session(session, |app| {
            let data = slice(data, data_len)?;
            app.verify(session, Some(data), slice(signature, signature_len)?)
        })
    }

    fn C_VerifyFinal(session: CK_SESSION_HANDLE, signature: *mut u8, len: CK_ULONG) {
        in_session(session, |app| app.verify(session, None, slice(signature, len)?))
    }

    /// Accepts a seed and ignores it: the members' generators seed themselves, and some programs seed each token
    /// before use.
    fn C_SeedRandom(session: CK_SESSION_HANDLE, seed: *mut u8, len: CK_ULONG) {
        in_session(session, |_| slice(seed, len).map(|_| ()))
    }

    fn C_GenerateRandom(session: CK_SESSION_HANDLE, random: *mut u8, len: CK_ULONG) {
        in_session(session, |app| {
            // Read first, for the pointers' sake: what is there does not matter.
            let len = slice(random, len)?.len();
            app.random(session, len, |at, bytes| {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), random.add(at), bytes.len());
            })
        })
    }
}

/// Without a mechanism, an Init ends what is under way.
unsafe fn optional(mechanism: *const CK_MECHANISM) -> Result<Option<Mechanism>> {
    if mechanism.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    unsafe { mechanism::read(mechanism) }.map(Some)
}
