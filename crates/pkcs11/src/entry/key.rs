//! Key management.

#![allow(non_snake_case)]

use hsmux_token::ck::*;

use super::guard::export;
use super::pointer::{Output, check, give, slice};
use super::{mechanism, template};
use crate::library::in_session;

export! {
    fn C_GenerateKey(
        session: CK_SESSION_HANDLE,
        mechanism: *mut CK_MECHANISM,
        attributes: *mut CK_ATTRIBUTE,
        count: CK_ULONG,
        key: *mut CK_OBJECT_HANDLE,
    ) {
        in_session(session, |app| {
            check(key)?;
            let mechanism = mechanism::read(mechanism)?;
            let template = template::read(attributes, count)?;
            give(key, app.generate(session, mechanism, template)?)
        })
    }

    fn C_GenerateKeyPair(
        session: CK_SESSION_HANDLE,
        mechanism: *mut CK_MECHANISM,
        public_attributes: *mut CK_ATTRIBUTE,
        public_count: CK_ULONG,
        private_attributes: *mut CK_ATTRIBUTE,
        private_count: CK_ULONG,
        public_key: *mut CK_OBJECT_HANDLE,
        private_key: *mut CK_OBJECT_HANDLE,
    ) {
        in_session(session, |app| {
            check(public_key)?;
            check(private_key)?;
            let mechanism = mechanism::read(mechanism)?;
            let public = template::read(public_attributes, public_count)?;
            let private = template::read(private_attributes, private_count)?;
            let (public, private) = app.generate_pair(session, mechanism, public, private)?;
            give(public_key, public)?;
            give(private_key, private)
        })
    }

    fn C_WrapKey(
        session: CK_SESSION_HANDLE,
        mechanism: *mut CK_MECHANISM,
        wrapping_key: CK_OBJECT_HANDLE,
        key: CK_OBJECT_HANDLE,
        wrapped: *mut u8,
        wrapped_len: *mut CK_ULONG,
    ) {
        in_session(session, |app| {
            let mut out = Output::new(wrapped, wrapped_len)?;
            let mechanism = mechanism::read(mechanism)?;
            out.put(&app.wrap(session, mechanism, wrapping_key, key)?)
        })
    }

    fn C_UnwrapKey(
        session: CK_SESSION_HANDLE,
        mechanism: *mut CK_MECHANISM,
        unwrapping_key: CK_OBJECT_HANDLE,
        wrapped: *mut u8,
        wrapped_len: CK_ULONG,
        attributes: *mut CK_ATTRIBUTE,
        count: CK_ULONG,
        key: *mut CK_OBJECT_HANDLE,
    ) {
        in_session(session, |app| {
            check(key)?;
            let mechanism = mechanism::read(mechanism)?;
            let wrapped = slice(wrapped, wrapped_len)?;
            let template = template::read(attributes, count)?;
            give(key, app.unwrap(session, mechanism, unwrapping_key, wrapped, template)?)
        })
    }

    fn C_DeriveKey(
        session: CK_SESSION_HANDLE,
        mechanism: *mut CK_MECHANISM,
        base: CK_OBJECT_HANDLE,
        attributes: *mut CK_ATTRIBUTE,
        count: CK_ULONG,
        key: *mut CK_OBJECT_HANDLE,
    ) {
        in_session(session, |app| {
            check(key)?;
            let mechanism = mechanism::read(mechanism)?;
            let template = template::read(attributes, count)?;
            give(key, app.derive(session, mechanism, base, template)?)
        })
    }
}
