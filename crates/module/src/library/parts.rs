//! Encryption and decryption in parts (PKCS#11 3.0, sections 5.8 and 5.10).

use hsmux_token::ck::{
    CK_C_Sign, CK_C_SignFinal, CK_FUNCTION_LIST, CKR_DEVICE_ERROR, CKR_FUNCTION_NOT_SUPPORTED,
};
use hsmux_token::{Error, Result, Verb};

use super::{Library, Session, announce, check, input};

/// More than the longest block of a cipher.
const ROOM: usize = 64;

/// The calls after C_EncryptInit or C_DecryptInit. In the standard both verbs have these types.
struct Parts {
    update: (&'static str, CK_C_Sign),
    last: (&'static str, CK_C_SignFinal),
}

impl Parts {
    fn of(verb: Verb, f: &CK_FUNCTION_LIST) -> Self {
        if verb == Verb::Encrypt {
            return Self {
                update: ("C_EncryptUpdate", f.C_EncryptUpdate),
                last: ("C_EncryptFinal", f.C_EncryptFinal),
            };
        }
        Self {
            update: ("C_DecryptUpdate", f.C_DecryptUpdate),
            last: ("C_DecryptFinal", f.C_DecryptFinal),
        }
    }
}

impl Library {
    /// After [`Self::begin`]: whole blocks, which must be returned at once. `room` is as long as `data`.
    pub(crate) fn next_part(
        &self,
        session: Session,
        verb: Verb,
        data: &[u8],
        room: &mut [u8],
    ) -> Result<()> {
        let (name, Some(update)) = Parts::of(verb, &self.functions).update else {
            return Err(Error::vendor("C_EncryptUpdate", CKR_FUNCTION_NOT_SUPPORTED));
        };
        announce(name);
        let mut len = room.len() as u64;
        let (from, to) = (input(data), room.as_mut_ptr());
        // SAFETY: the data with its length, the room with its length.
        let code = unsafe { update(session, from, data.len() as u64, to, &raw mut len) };
        check(name, code)?;
        all_of_it(name, len, room.len())
    }

    /// Ends an operation without remaining data.
    pub(crate) fn end_parts(&self, session: Session, verb: Verb) -> Result<()> {
        let (name, Some(last)) = Parts::of(verb, &self.functions).last else {
            return Err(Error::vendor("C_EncryptFinal", CKR_FUNCTION_NOT_SUPPORTED));
        };
        announce(name);
        let mut room = [0; ROOM];
        let mut len = ROOM as u64;
        // SAFETY: the room with its length.
        let code = unsafe { last(session, room.as_mut_ptr(), &raw mut len) };
        check(name, code)?;
        all_of_it(name, len, 0)
    }
}

fn all_of_it(call: &str, len: u64, wanted: usize) -> Result<()> {
    if len == wanted as u64 {
        return Ok(());
    }
    let message = format!("{len} bytes in place of {wanted}");
    Err(Error::vendor(call, CKR_DEVICE_ERROR).at(message))
}
