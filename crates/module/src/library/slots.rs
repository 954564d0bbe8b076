//! Slots, tokens, mechanisms (PKCS#11 3.0, sections 5.4 and 5.5).

use hsmux_token::ck::{
    CK_INFO, CK_MECHANISM_INFO, CK_SLOT_INFO, CK_TOKEN_INFO, CK_TRUE, CKR_BUFFER_TOO_SMALL,
};
use hsmux_token::{MechanismInfo, Result};

use super::{Library, Slot, call, input};

impl Library {
    /// C_GetSlotList: slots with a token. One thread at a time: SoftHSM adds a free slot here, and has no lock.
    pub(crate) fn slots(&self) -> Result<Vec<Slot>> {
        let _turn = self.slot_list.lock();
        list(|place, len| {
            // SAFETY: `place` is null or has room for `len` ids.
            unsafe { call!(self, C_GetSlotList(CK_TRUE, place, len)) }
        })
    }

    /// C_GetInfo.
    pub(crate) fn info(&self) -> Result<CK_INFO> {
        let mut info = CK_INFO::default();
        // SAFETY: a place for one structure.
        unsafe { call!(self, C_GetInfo(&raw mut info)) }?;
        Ok(info)
    }

    /// C_GetSlotInfo.
    pub(crate) fn slot_info(&self, slot: Slot) -> Result<CK_SLOT_INFO> {
        let mut info = CK_SLOT_INFO::default();
        // SAFETY: a place for one structure.
        unsafe { call!(self, C_GetSlotInfo(slot, &raw mut info)) }?;
        Ok(info)
    }

    /// C_GetTokenInfo.
    pub(crate) fn token_info(&self, slot: Slot) -> Result<CK_TOKEN_INFO> {
        let mut info = CK_TOKEN_INFO::default();
        // SAFETY: a place for one structure.
        unsafe { call!(self, C_GetTokenInfo(slot, &raw mut info)) }?;
        Ok(info)
    }

    /// C_GetMechanismList and C_GetMechanismInfo, sorted by kind.
    pub(crate) fn mechanisms(&self, slot: Slot) -> Result<Vec<MechanismInfo>> {
        let mut kinds = list(|place, len| {
            // SAFETY: `place` is null or has room for `len` numbers.
            unsafe { call!(self, C_GetMechanismList(slot, place, len)) }
        })?;
        kinds.sort_unstable();
        kinds.dedup();
        // A mechanism without a description is not offered.
        let described = kinds.into_iter().filter_map(|kind| {
            let mut info = CK_MECHANISM_INFO::default();
            // SAFETY: a place for one structure.
            unsafe { call!(self, C_GetMechanismInfo(slot, kind, &raw mut info)) }.ok()?;
            Some(MechanismInfo {
                kind,
                min_key: info.ulMinKeySize,
                max_key: info.ulMaxKeySize,
                flags: info.flags,
            })
        });
        Ok(described.collect())
    }

    /// C_InitToken.
    pub(crate) fn init_token(&self, slot: Slot, so_pin: &[u8], label: &[u8; 32]) -> Result<()> {
        // SAFETY: the PIN with its length; the label has the 32 bytes that the standard asks for.
        unsafe {
            call!(
                self,
                C_InitToken(slot, input(so_pin), so_pin.len() as u64, input(label))
            )
        }
    }
}

/// More slots or mechanisms than any module has: a greater number is an error of the module.
const MOST: u64 = 1 << 16;

/// Gets a list by the standard's convention: first its length, then the list, which may have grown meanwhile.
fn list(get: impl Fn(*mut u64, *mut u64) -> Result<()>) -> Result<Vec<u64>> {
    let mut room = 0;
    get(std::ptr::null_mut(), &raw mut room)?;
    room = room.clamp(1, MOST);
    loop {
        let mut len = room;
        let mut items = vec![0; len as usize];
        match get(items.as_mut_ptr(), &raw mut len) {
            Err(e) if e.code() == Some(CKR_BUFFER_TOO_SMALL) && room < MOST => {
                room = MOST.min(len.max(2 * room));
            }
            result => {
                items.truncate(len as usize);
                return result.map(|()| items);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use hsmux_token::Error;

    use super::*;

    #[test]
    fn a_list_has_65536_entries_however_many_a_module_announces() {
        for announced in [3, u64::MAX] {
            let most = Cell::new(0);
            let listed = list(|place, len| {
                // SAFETY: `list` gives the place of a number.
                let len = unsafe { &mut *len };
                if place.is_null() {
                    *len = announced;
                    return Ok(());
                }
                most.set(most.get().max(*len));
                *len = u64::MAX;
                Err(Error::vendor("C_GetSlotList", CKR_BUFFER_TOO_SMALL))
            });
            assert_eq!(listed.unwrap_err().code(), Some(CKR_BUFFER_TOO_SMALL));
            assert_eq!(most.get(), 65_536);
        }
    }
}
