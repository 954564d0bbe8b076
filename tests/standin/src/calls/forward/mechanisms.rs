//! What the tokens behind say that they can do, but for what is not to be said.

use hsmux_token::ck::*;

use super::BEHIND;
use crate::calls::{code, put_list};
use crate::control::Control;

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
    let control = Control::now()?;
    let lacks = &control.token(slot)?.lacks;
    said.retain(|mechanism| !lacks.contains(mechanism));
    Ok(said)
}

fn all(slot: CK_SLOT_ID) -> Result<Vec<CK_MECHANISM_TYPE>, CK_RV> {
    let mut len = 0;
    // SAFETY: a place for a number; without one for the list the length is asked for.
    unsafe { real!(C_GetMechanismList(slot, std::ptr::null_mut(), &raw mut len)) }?;
    let mut list = vec![0; len as usize];
    // SAFETY: a place for as many as it is told.
    unsafe { real!(C_GetMechanismList(slot, list.as_mut_ptr(), &raw mut len)) }?;
    list.truncate(len as usize);
    Ok(list)
}
