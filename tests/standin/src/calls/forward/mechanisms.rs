//! Mechanisms of the other module's tokens, without the withheld ones.

use hsmux_token::ck::*;

use super::FORWARD_MODULE;
use crate::calls::{code, padded, put_list};
use crate::control::ControlFile;

pub unsafe extern "C" fn C_GetTokenInfo(slot: CK_SLOT_ID, info: *mut CK_TOKEN_INFO) -> CK_RV {
    let get = || {
        // SAFETY: the standard's promise.
        unsafe { real!(C_GetTokenInfo(slot, info)) }?;
        let control = ControlFile::now()?;
        let name = &control.token(slot)?.manufacturer;
        if !name.is_empty() {
            // SAFETY: the other module has just written there.
            unsafe { (*info).manufacturerID = padded(name) };
        }
        Ok(())
    };
    code(get())
}

pub unsafe extern "C" fn C_GetMechanismList(
    slot: CK_SLOT_ID,
    place: *mut CK_MECHANISM_TYPE,
    len: *mut CK_ULONG,
) -> CK_RV {
    // SAFETY: the standard's promise.
    code(said(slot).and_then(|said| unsafe { put_list(&said, place, len) }))
}

fn said(slot: CK_SLOT_ID) -> Result<Vec<CK_MECHANISM_TYPE>, CK_RV> {
    let mut said = all(slot)?;
    let control = ControlFile::now()?;
    let lacks = &control.token(slot)?.lacks;
    said.retain(|mechanism| !lacks.contains(mechanism));
    Ok(said)
}

fn all(slot: CK_SLOT_ID) -> Result<Vec<CK_MECHANISM_TYPE>, CK_RV> {
    let mut len = 0;
    // SAFETY: a place for a number; a null list asks for the length.
    unsafe { real!(C_GetMechanismList(slot, std::ptr::null_mut(), &raw mut len)) }?;
    let mut list = vec![0; len as usize];
    // SAFETY: a place for this number of items.
    unsafe { real!(C_GetMechanismList(slot, list.as_mut_ptr(), &raw mut len)) }?;
    list.truncate(len as usize);
    Ok(list)
}
