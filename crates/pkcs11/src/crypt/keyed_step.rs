//! The keyed step: on a member, or with a public key in this process.

use std::sync::Arc;

use bytes::Bytes;
use hsmux_token::ck::*;
use hsmux_token::{Error, Kind, Mechanism, ObjectRef, Operation, Outcome, Verb};

use crate::app::App;
use crate::object::ObjectEntry;
use crate::rv::{Result, Rv};

/// The keyed step of an operation.
#[derive(Clone)]
pub enum KeyedStep {
    /// Nothing: the digest is the answer.
    Digest,
    /// A member, with a key that does not leave it.
    Member(MemberStep),
    /// The public key, here.
    Public(Arc<ObjectEntry>),
}

/// The verb and the key of a member's operation.
#[derive(Clone, Copy)]
pub struct MemberStep {
    /// The verb.
    pub verb: Verb,
    /// The key.
    pub key: ObjectRef,
}

impl MemberStep {
    /// The operation for these data.
    pub fn operation(self, mechanism: &Mechanism, data: Bytes) -> Operation {
        Operation::Use {
            verb: self.verb,
            key: self.key,
            mechanism: mechanism.clone(),
            data: data.into(),
        }
    }

    fn ask(self, app: &App, mechanism: &Mechanism, data: Bytes) -> Result<Outcome> {
        let operation = self.operation(mechanism, data);
        app.backend.execute(&operation).map_err(of_key)
    }
}

impl KeyedStep {
    /// Digests, signs, enciphers or deciphers.
    pub fn run(&self, app: &App, mechanism: &Mechanism, data: Bytes) -> Result<Bytes> {
        match self {
            Self::Digest => Ok(data),
            Self::Member(asked) => Ok(asked.ask(app, mechanism, data)?.into_bytes()?),
            Self::Public(key) => Ok(key.public()?.encrypt(mechanism, &data)?.into()),
        }
    }

    /// The data of a signature that holds it.
    pub fn recover(&self, mechanism: &Mechanism, signature: &[u8]) -> Result<Bytes> {
        match self {
            Self::Public(key) => Ok(key.public()?.verify_recover(mechanism, signature)?.into()),
            Self::Digest | Self::Member(_) => Err(Rv(CKR_FUNCTION_NOT_SUPPORTED)),
        }
    }

    /// Verifies a signature here, or a MAC on a member.
    pub fn verify(
        &self,
        app: &App,
        mechanism: &Mechanism,
        data: &[u8],
        signature: &[u8],
    ) -> Result {
        match self {
            Self::Digest => Err(Rv(CKR_FUNCTION_NOT_SUPPORTED)),
            Self::Public(key) => Ok(key.public()?.verify(mechanism, data, signature)?),
            Self::Member(asked) => {
                let len =
                    u32::try_from(signature.len()).map_err(|_| Rv(CKR_SIGNATURE_LEN_RANGE))?;
                let data = [&len.to_be_bytes(), signature, data].concat();
                asked.ask(app, mechanism, data.into()).map(|_| ())
            }
        }
    }
}

/// An object that is gone is a key that is gone.
pub fn of_key(error: Error) -> Rv {
    match error.kind() {
        Kind::UnknownObject | Kind::Vendor(CKR_OBJECT_HANDLE_INVALID) => {
            crate::debug::say(&error);
            Rv(CKR_KEY_HANDLE_INVALID)
        }
        _ => error.into(),
    }
}
