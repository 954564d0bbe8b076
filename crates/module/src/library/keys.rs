//! Uses of keys, and operations that create keys (PKCS#11 3.0, sections 5.8 to 5.18).

use bytes::Bytes;
use hsmux_token::ck::{
    CK_C_Sign, CK_C_SignInit, CK_FUNCTION_LIST, CK_RV, CKR_BUFFER_TOO_SMALL, CKR_FUNCTION_FAILED,
    CKR_FUNCTION_NOT_SUPPORTED, CKR_OPERATION_NOT_INITIALIZED,
};
use hsmux_token::{Attributes, Error, Mechanism, Result, Verb};
use zeroize::Zeroize;

use super::objects::made;
use super::{Handle, Library, Session, call, check, input};
use crate::params::with_raw;
use crate::template::Template;

/// The two functions of a verb. In the standard all verbs have these types, except C_Verify.
pub(super) struct Steps {
    init: (&'static str, CK_C_SignInit),
    run: (&'static str, CK_C_Sign),
}

impl Steps {
    pub(super) fn of(verb: Verb, f: &CK_FUNCTION_LIST) -> Self {
        let (init, run) = match verb {
            Verb::Sign => (("C_SignInit", f.C_SignInit), ("C_Sign", f.C_Sign)),
            Verb::SignRecover => (
                ("C_SignRecoverInit", f.C_SignRecoverInit),
                ("C_SignRecover", f.C_SignRecover),
            ),
            Verb::Encrypt => (
                ("C_EncryptInit", f.C_EncryptInit),
                ("C_Encrypt", f.C_Encrypt),
            ),
            Verb::Decrypt => (
                ("C_DecryptInit", f.C_DecryptInit),
                ("C_Decrypt", f.C_Decrypt),
            ),
            Verb::Verify => (("C_VerifyInit", f.C_VerifyInit), ("C_Verify", None)),
        };
        Self { init, run }
    }

    pub(super) fn init(&self, session: Session, mechanism: &Mechanism, key: Handle) -> Result<()> {
        let (name, Some(init)) = self.init else {
            return Err(Error::vendor(self.init.0, CKR_FUNCTION_NOT_SUPPORTED));
        };
        with_raw(mechanism, |raw| {
            // SAFETY: the mechanism and what it points to live through the call.
            check(name, unsafe { init(session, raw, key) })
        })?
    }

    /// Runs the second step with a buffer for the answer; returns the code, and the length written or needed.
    fn run(&self, session: Session, data: &[u8], room: &mut [u8]) -> (CK_RV, usize) {
        let Some(run) = self.run.1 else {
            return (CKR_FUNCTION_NOT_SUPPORTED, 0);
        };
        let mut len = room.len() as u64;
        // SAFETY: the data with its length, the room with its length.
        let code = unsafe {
            run(
                session,
                input(data),
                data.len() as u64,
                room.as_mut_ptr(),
                &raw mut len,
            )
        };
        (code, len as usize)
    }
}

/// Buffer on the stack: enough for any RSA or EC signature, and for most texts.
const SMALL: usize = 1024;
/// How much longer an answer may be than its input: padding and tag.
const MARGIN: usize = 64;
/// A greater difference in length is an error of the module.
const LONGEST_MARGIN: usize = 1 << 16;

impl Library {
    /// Runs both calls of a verb.
    pub(crate) fn crypt(
        &self,
        session: Session,
        verb: Verb,
        mechanism: &Mechanism,
        key: Handle,
        data: &[u8],
    ) -> Result<Bytes> {
        self.begin(session, verb, mechanism, key)?;
        self.complete(session, verb, mechanism, key, data)
    }

    /// Runs the first call.
    pub(crate) fn begin(
        &self,
        session: Session,
        verb: Verb,
        mechanism: &Mechanism,
        key: Handle,
    ) -> Result<()> {
        Steps::of(verb, &self.functions).init(session, mechanism, key)
    }

    /// Runs the second call. The length of the answer is estimated, so that one call is usually enough.
    pub(crate) fn complete(
        &self,
        session: Session,
        verb: Verb,
        mechanism: &Mechanism,
        key: Handle,
        data: &[u8],
    ) -> Result<Bytes> {
        let steps = Steps::of(verb, &self.functions);
        let most = data.len() + LONGEST_MARGIN;
        let mut needed = data.len() + MARGIN;
        if needed <= SMALL {
            let mut room = [0; SMALL];
            let (code, len) = steps.run(session, data, &mut room);
            if code != CKR_BUFFER_TOO_SMALL {
                check(steps.run.0, code)?;
                let bytes = Bytes::copy_from_slice(&room[..len.min(SMALL)]);
                if verb == Verb::Decrypt {
                    room[..bytes.len()].zeroize();
                }
                return Ok(bytes);
            }
            needed = len.max(2 * SMALL);
        }
        loop {
            if needed > most {
                // The data may be the cause, so the token is not taken out of service.
                return Err(Error::vendor(steps.run.0, CKR_FUNCTION_FAILED)
                    .at(format!("asks for a buffer of {needed} bytes")));
            }
            let mut room = vec![0; needed];
            let (mut code, mut len) = steps.run(session, data, &mut room);
            if code == CKR_OPERATION_NOT_INITIALIZED {
                // Against the standard, the short buffer has ended the operation: start it again.
                steps.init(session, mechanism, key)?;
                (code, len) = steps.run(session, data, &mut room);
            }
            if code == CKR_BUFFER_TOO_SMALL {
                let more = (2 * needed).min(most).max(needed + 1);
                needed = len.max(more);
                continue;
            }
            check(steps.run.0, code)?;
            room.truncate(len);
            return Ok(room.into());
        }
    }

    /// C_VerifyInit and C_Verify.
    pub(crate) fn verify(
        &self,
        session: Session,
        mechanism: &Mechanism,
        key: Handle,
        data: &[u8],
        signature: &[u8],
    ) -> Result<()> {
        Steps::of(Verb::Verify, &self.functions).init(session, mechanism, key)?;
        // SAFETY: data and signature with their lengths.
        unsafe {
            call!(
                self,
                C_Verify(
                    session,
                    input(data),
                    data.len() as u64,
                    input(signature),
                    signature.len() as u64
                )
            )
        }
    }

    /// C_GenerateKey.
    pub(crate) fn generate(
        &self,
        session: Session,
        mechanism: &Mechanism,
        template: &Attributes,
    ) -> Result<Handle> {
        let mut template = Template::new(template)?;
        with_raw(mechanism, |raw| {
            made(&mut template, |place, len, handle| {
                // SAFETY: a mechanism, `len` attributes, a place for one handle.
                unsafe { call!(self, C_GenerateKey(session, raw, place, len, handle)) }
            })
        })?
    }

    /// C_GenerateKeyPair: the handles of the public and of the private key.
    pub(crate) fn generate_pair(
        &self,
        session: Session,
        mechanism: &Mechanism,
        public: &Attributes,
        private: &Attributes,
    ) -> Result<(Handle, Handle)> {
        let (mut public, mut private) = (Template::new(public)?, Template::new(private)?);
        let (public, public_len) = public.raw();
        let (private, private_len) = private.raw();
        let (mut first, mut second) = (0, 0);
        with_raw(mechanism, |raw| {
            // SAFETY: a mechanism, both templates with their lengths, places for two handles.
            unsafe {
                call!(
                    self,
                    C_GenerateKeyPair(
                        session,
                        raw,
                        public,
                        public_len,
                        private,
                        private_len,
                        &raw mut first,
                        &raw mut second
                    )
                )
            }
        })??;
        Ok((first, second))
    }

    /// C_DeriveKey.
    pub(crate) fn derive(
        &self,
        session: Session,
        mechanism: &Mechanism,
        key: Handle,
        template: &Attributes,
    ) -> Result<Handle> {
        let mut template = Template::new(template)?;
        with_raw(mechanism, |raw| {
            made(&mut template, |place, len, handle| {
                // SAFETY: a mechanism, `len` attributes, a place for one handle.
                unsafe { call!(self, C_DeriveKey(session, raw, key, place, len, handle)) }
            })
        })?
    }

    /// C_UnwrapKey.
    pub(crate) fn unwrap(
        &self,
        session: Session,
        mechanism: &Mechanism,
        unwrapping: Handle,
        wrapped: &[u8],
        template: &Attributes,
    ) -> Result<Handle> {
        let mut template = Template::new(template)?;
        with_raw(mechanism, |raw| {
            made(&mut template, |place, len, handle| {
                // SAFETY: a mechanism, the wrapped key and its length, `len` attributes, one handle.
                unsafe {
                    call!(
                        self,
                        C_UnwrapKey(
                            session,
                            raw,
                            unwrapping,
                            input(wrapped),
                            wrapped.len() as u64,
                            place,
                            len,
                            handle
                        )
                    )
                }
            })
        })?
    }

    /// C_WrapKey. The call has no state, so it asks for the length first.
    pub(crate) fn wrap(
        &self,
        session: Session,
        mechanism: &Mechanism,
        wrapping: Handle,
        key: Handle,
    ) -> Result<Vec<u8>> {
        let wrap = |place: *mut u8, len: &mut u64| {
            with_raw(mechanism, |raw| {
                // SAFETY: a mechanism; `place` is null or has room for `len` bytes.
                unsafe {
                    call!(
                        self,
                        C_WrapKey(session, raw, wrapping, key, place, std::ptr::from_mut(len))
                    )
                }
            })?
        };
        let mut len = 0;
        wrap(std::ptr::null_mut(), &mut len)?;
        // Some modules announce less than they write, for example for RSA-OAEP.
        len = len.clamp(SMALL as u64, LONGEST_MARGIN as u64);
        let mut wrapped = vec![0; len as usize];
        wrap(wrapped.as_mut_ptr(), &mut len)?;
        wrapped.truncate(len as usize);
        Ok(wrapped)
    }
}
