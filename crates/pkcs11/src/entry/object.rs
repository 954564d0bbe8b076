//! Objects and their attributes.

#![allow(non_snake_case)]

use hsmux_token::ck::*;

use super::guard::export;
use super::pointer::{check, give};
use super::template;
use crate::library::{in_session, with};
use crate::rv::Rv;

export! {
    fn C_CreateObject(
        session: CK_SESSION_HANDLE,
        attributes: *mut CK_ATTRIBUTE,
        count: CK_ULONG,
        object: *mut CK_OBJECT_HANDLE,
    ) {
        in_session(session, |app| {
            check(object)?;
            give(object, app.create(session, template::read(attributes, count)?)?)
        })
    }

    fn C_CopyObject(
        session: CK_SESSION_HANDLE,
        object: CK_OBJECT_HANDLE,
        attributes: *mut CK_ATTRIBUTE,
        count: CK_ULONG,
        copy: *mut CK_OBJECT_HANDLE,
    ) {
        in_session(session, |app| {
            check(copy)?;
            give(copy, app.copy(session, object, template::read(attributes, count)?)?)
        })
    }

    fn C_DestroyObject(session: CK_SESSION_HANDLE, object: CK_OBJECT_HANDLE) {
        with(|app| app.destroy(session, object))
    }

    fn C_GetObjectSize(
        session: CK_SESSION_HANDLE,
        object: CK_OBJECT_HANDLE,
        size: *mut CK_ULONG,
    ) {
        in_session(session, |app| give(size, app.object_size(session, object)?))
    }

    fn C_GetAttributeValue(
        session: CK_SESSION_HANDLE,
        object: CK_OBJECT_HANDLE,
        attributes: *mut CK_ATTRIBUTE,
        count: CK_ULONG,
    ) {
        in_session(session, |app| {
            let wanted = template::array(attributes, count)?.iter().map(|attribute| attribute.type_);
            let readable = app.readable(session, object, wanted)?;
            template::fill(attributes, count, |kind| readable.value(kind))
        })
    }

    fn C_SetAttributeValue(
        session: CK_SESSION_HANDLE,
        object: CK_OBJECT_HANDLE,
        attributes: *mut CK_ATTRIBUTE,
        count: CK_ULONG,
    ) {
        in_session(session, |app| app.set_attributes(session, object, &template::read(attributes, count)?))
    }

    fn C_FindObjectsInit(
        session: CK_SESSION_HANDLE,
        attributes: *mut CK_ATTRIBUTE,
        count: CK_ULONG,
    ) {
        in_session(session, |app| app.search(session, &template::read(attributes, count)?))
    }

    fn C_FindObjects(
        session: CK_SESSION_HANDLE,
        objects: *mut CK_OBJECT_HANDLE,
        max: CK_ULONG,
        count: *mut CK_ULONG,
    ) {
        in_session(session, |app| {
            check(count)?;
            let max = usize::try_from(max).map_err(|_| Rv(CKR_ARGUMENTS_BAD))?;
            if max > 0 {
                check(objects)?;
            }
            let found = app.next_found(session, max)?;
            for (at, handle) in found.iter().enumerate() {
                // There is room for as many as were asked for.
                objects.add(at).write(*handle);
            }
            give(count, found.len() as CK_ULONG)
        })
    }

    fn C_FindObjectsFinal(session: CK_SESSION_HANDLE) {
        with(|app| app.end_search(session))
    }
}
