//! Objects and attributes.

use hsmux_token::Attributes;
use hsmux_token::ck::*;

use super::{code, input, put};
use crate::control::TokenControl;
use crate::keys::TokenKeys;
use crate::objects::{AES, EC};
use crate::world::World;

impl TokenControl {
    /// Whether the token holds the keys of this name now.
    pub fn holds(&self, name: &str) -> bool {
        self.keys.iter().any(|held| held == name)
    }
}

/// Reads a template.
///
/// # Safety
/// `len` attributes, each with a value of its length.
unsafe fn template(place: *mut CK_ATTRIBUTE, len: CK_ULONG) -> Result<Attributes, CK_RV> {
    let mut read = Attributes::default();
    for at in 0..len as usize {
        // SAFETY: the caller's promise.
        let attribute = unsafe { *place.add(at) };
        // SAFETY: the caller's promise.
        let value = unsafe { input(attribute.pValue.cast(), attribute.ulValueLen) }?;
        read.set(attribute.type_, value.to_vec());
    }
    Ok(read)
}

pub unsafe extern "C" fn C_FindObjectsInit(
    session: CK_SESSION_HANDLE,
    place: *mut CK_ATTRIBUTE,
    len: CK_ULONG,
) -> CK_RV {
    let init = || {
        // SAFETY: the standard's promise.
        let wanted = unsafe { template(place, len) }?;
        let logged_in = World::with(|world| {
            let slot = world.session(session)?.slot;
            Ok(world.user(slot).is_some())
        })?;
        World::with_session(session, |session, token| {
            if session.found.is_some() {
                return Err(CKR_OPERATION_ACTIVE);
            }
            let keys = TokenKeys::of(token.key_seed);
            let visible = keys.things.iter().filter(|thing| {
                token.holds(thing.name)
                    && (logged_in || thing.attributes.flag(CKA_PRIVATE) == Some(false))
                    && thing.attributes.matches(&wanted)
            });
            session.found = Some(visible.map(|thing| thing.handle).collect());
            Ok(())
        })
    };
    code(init())
}

pub unsafe extern "C" fn C_FindObjects(
    session: CK_SESSION_HANDLE,
    place: *mut CK_OBJECT_HANDLE,
    most: CK_ULONG,
    len: *mut CK_ULONG,
) -> CK_RV {
    let find = || {
        let given = World::with_session(session, |session, token| {
            let found = session
                .found
                .as_mut()
                .ok_or(CKR_OPERATION_NOT_INITIALIZED)?;
            if token.endless_search {
                return Ok(vec![EC; most as usize]);
            }
            let count = found.len().min(most as usize);
            Ok(found.drain(..count).collect::<Vec<_>>())
        })?;
        for (at, handle) in given.iter().enumerate() {
            // SAFETY: the standard's promise: room for `most` handles.
            unsafe { put(place.add(at), *handle) }?;
        }
        // SAFETY: the standard's promise.
        unsafe { put(len, given.len() as CK_ULONG) }
    };
    code(find())
}

pub extern "C" fn C_FindObjectsFinal(session: CK_SESSION_HANDLE) -> CK_RV {
    code(World::with(|world| {
        let found = world.session(session)?.found.take();
        found.map(drop).ok_or(CKR_OPERATION_NOT_INITIALIZED)
    }))
}

pub unsafe extern "C" fn C_GetAttributeValue(
    session: CK_SESSION_HANDLE,
    object: CK_OBJECT_HANDLE,
    place: *mut CK_ATTRIBUTE,
    len: CK_ULONG,
) -> CK_RV {
    let get = || {
        let (keys, stops, always, nameless) = World::with_session(session, |_, token| {
            let keys = TokenKeys::of(token.key_seed);
            let thing = keys.things.iter().find(|thing| thing.handle == object);
            if !thing.is_some_and(|thing| token.holds(thing.name)) {
                return Err(CKR_OBJECT_HANDLE_INVALID);
            }
            let always = token.always_authenticate && object == EC;
            let nameless = token.no_check_value && object == AES;
            Ok((keys, token.stops_at_first_attribute, always, nameless))
        })?;
        let thing = keys.things.iter().find(|thing| thing.handle == object);
        let thing = thing.ok_or(CKR_OBJECT_HANDLE_INVALID)?;
        let mut attributes = thing.attributes.clone();
        if always {
            attributes.set_flag(CKA_ALWAYS_AUTHENTICATE, true);
        }
        if nameless {
            attributes.remove(CKA_CHECK_VALUE);
        }
        let mut result = Ok(());
        for at in 0..len as usize {
            // SAFETY: the standard's promise: `len` attributes.
            let attribute = unsafe { &mut *place.add(at) };
            // SAFETY: the same: room for the attribute's length.
            if let Err(code) = unsafe { answer(attribute, &attributes) } {
                result = Err(code);
                if stops {
                    break;
                }
            }
        }
        result
    };
    code(get())
}

/// Writes one attribute.
///
/// # Safety
/// `pValue` is null or has room for `ulValueLen` bytes.
unsafe fn answer(attribute: &mut CK_ATTRIBUTE, all: &Attributes) -> Result<(), CK_RV> {
    let Some(value) = all.get(attribute.type_) else {
        attribute.ulValueLen = CK_UNAVAILABLE_INFORMATION;
        return Err(CKR_ATTRIBUTE_TYPE_INVALID);
    };
    let room = std::mem::replace(&mut attribute.ulValueLen, value.len() as CK_ULONG);
    if attribute.pValue.is_null() {
        return Ok(());
    }
    if (room as usize) < value.len() {
        attribute.ulValueLen = CK_UNAVAILABLE_INFORMATION;
        return Err(CKR_BUFFER_TOO_SMALL);
    }
    let place: *mut u8 = attribute.pValue.cast();
    // SAFETY: the caller's promise; the room was checked.
    unsafe { place.copy_from_nonoverlapping(value.as_ptr(), value.len()) };
    Ok(())
}
