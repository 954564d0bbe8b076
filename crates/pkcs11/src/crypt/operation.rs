//! An operation between its Init and its end.

use std::sync::Arc;

use bytes::Bytes;
use hsmux_token::ck::*;
use hsmux_token::{KeyKind, Mechanism, Operation};

use super::function::Function;
use super::input::OperationInput;
use super::keyed_step::KeyedStep;
use super::length::{self, AnswerLength};
use crate::app::App;
use crate::entry::Output;
use crate::object::ObjectEntry;
use crate::rv::{Result, Rv};

/// An operation under way. After an error other than CKR_BUFFER_TOO_SMALL it is over.
#[derive(Clone)]
pub struct ActiveOperation {
    /// Which function it is of.
    pub function: Function,
    /// The mechanism of the keyed step: the part of the application's mechanism behind the hash.
    pub(super) mechanism: Mechanism,
    pub(super) input: OperationInput,
    pub(super) target: KeyedStep,
    pub(super) key: Option<Arc<ObjectEntry>>,
    /// True once parts have come.
    pub(super) begun: bool,
    /// True while the key waits for C_Login as CKU_CONTEXT_SPECIFIC.
    pub(super) locked: bool,
    /// An answer whose length could not be foretold, and for which there was no room.
    pub(super) kept: Option<PendingAnswer>,
}

/// An answer that waits for a larger buffer.
#[derive(Clone)]
pub(super) struct PendingAnswer {
    data: Bytes,
    answer: Bytes,
}

impl ActiveOperation {
    /// C_Sign, C_Encrypt and their like: all data at once.
    pub fn whole(&mut self, app: &App, data: &[u8], out: &mut Output) -> Result {
        if self.begun {
            return Err(Rv(CKR_OPERATION_ACTIVE));
        }
        let length = match &self.input {
            OperationInput::Blocks(blocks) => blocks.whole_length(data.len())?,
            _ => self.length(data.len()),
        };
        self.deliver(data, out, length, |this| match &this.input {
            OperationInput::Blocks(blocks) => blocks.whole(data, &|mechanism, data| {
                this.target.run(app, mechanism, data)
            }),
            _ if this.function == Function::VerifyRecover => {
                this.target.recover(&this.mechanism, data)
            }
            _ => this.target.run(app, &this.mechanism, this.data(data)?),
        })
    }

    /// The Update functions that answer: C_EncryptUpdate, C_DecryptUpdate.
    ///
    /// `also` gets the answer of a part (the dual functions), once it is certain that there is one.
    pub fn update(
        &mut self,
        app: &App,
        part: &[u8],
        out: &mut Output,
        also: impl FnOnce(&[u8]) -> Result,
    ) -> Result {
        let OperationInput::Blocks(blocks) = &mut self.input else {
            if !out.is_query() {
                self.feed(part)?;
            }
            return out.put(&[]);
        };
        let len = blocks.update_len(part.len());
        if out.is_query() || out.room() < len {
            return out.put_length(len);
        }
        if self.locked {
            return Err(Rv(CKR_USER_NOT_LOGGED_IN));
        }
        self.begun = true;
        let target = &self.target;
        let answer = blocks.update(part, &|mechanism, data| target.run(app, mechanism, data))?;
        also(&answer)?;
        out.put(&answer)
    }

    /// Refuses operations that answer only at their end: their plain text would come too late for the second
    /// operation.
    pub fn in_parts(&self) -> Result {
        match self.input {
            OperationInput::Blocks(_) => Ok(()),
            OperationInput::Gather(_) | OperationInput::Hash(_) => {
                Err(Rv(CKR_FUNCTION_NOT_SUPPORTED))
            }
        }
    }

    /// The Update functions that do not: C_SignUpdate, C_VerifyUpdate, C_DigestUpdate.
    pub fn feed(&mut self, part: &[u8]) -> Result {
        self.begun = true;
        self.input.feed(part)
    }

    /// The Final functions: C_SignFinal, C_EncryptFinal and their like.
    pub fn finish(&mut self, app: &App, out: &mut Output) -> Result {
        let length = match &self.input {
            OperationInput::Blocks(blocks) => blocks.finish_length(),
            _ => self.length(0),
        };
        self.deliver(&[], out, length, |this| match &this.input {
            OperationInput::Blocks(blocks) => {
                blocks.finish(&|mechanism, data| this.target.run(app, mechanism, data))
            }
            _ => this.target.run(app, &this.mechanism, this.data(&[])?),
        })
    }

    /// C_Verify with all data, C_VerifyFinal without any.
    pub fn verify(&mut self, app: &App, data: Option<&[u8]>, signature: &[u8]) -> Result {
        if data.is_some() && self.begun {
            return Err(Rv(CKR_OPERATION_ACTIVE));
        }
        if self.locked {
            return Err(Rv(CKR_USER_NOT_LOGGED_IN));
        }
        let data = self.data(data.unwrap_or_default())?;
        self.target.verify(app, &self.mechanism, &data, signature)
    }

    /// The member's operation, for callers that send it themselves.
    pub fn operation(&self, last: &[u8]) -> Result<Operation> {
        match &self.target {
            KeyedStep::Member(asked) => Ok(asked.operation(&self.mechanism, self.data(last)?)),
            KeyedStep::Digest | KeyedStep::Public(_) => Err(Rv(CKR_KEY_TYPE_INCONSISTENT)),
        }
    }

    /// The key has been given its PIN; `false` if it did not wait for one.
    pub fn unlock(&mut self) -> bool {
        std::mem::take(&mut self.locked)
    }

    /// True if the key waits for its PIN.
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    /// True if its key is a private object.
    pub fn is_private(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.is_private())
    }

    fn data(&self, last: &[u8]) -> Result<Bytes> {
        let signature_len = self.key.as_ref().and_then(|key| key.signature_len());
        self.input.all(last, &self.mechanism, signature_len)
    }

    /// Answers length queries, and does the work at most once for each answer.
    fn deliver(
        &mut self,
        data: &[u8],
        out: &mut Output,
        length: AnswerLength,
        work: impl FnOnce(&Self) -> Result<Bytes>,
    ) -> Result {
        match length {
            AnswerLength::Exact(len) if out.is_query() || out.room() < len => {
                return out.put_length(len);
            }
            AnswerLength::AtMost(len) if out.is_query() => return out.put_length(len),
            _ => {}
        }
        if let Some(kept) = self.kept.take_if(|kept| *kept.data == *data) {
            return self.give(kept, out);
        }
        if self.locked {
            return Err(Rv(CKR_USER_NOT_LOGGED_IN));
        }
        let answer = work(self)?;
        if !out.is_query() && answer.len() <= out.room() {
            return out.put(&answer);
        }
        let data = Bytes::copy_from_slice(data);
        self.give(PendingAnswer { data, answer }, out)
    }

    fn give(&mut self, kept: PendingAnswer, out: &mut Output) -> Result {
        let given = out.put(&kept.answer);
        self.kept = Some(kept);
        given
    }

    /// The length of the answer to all input and `more` bytes, for operations that do not work in blocks.
    fn length(&self, more: usize) -> AnswerLength {
        let len = self.input.gathered() + more;
        let of_key = self.key.as_ref().and_then(|key| key.signature_len());
        let tag = length::of_tag(&self.mechanism);
        match (&self.target, self.function) {
            (KeyedStep::Digest, _) => match &self.input {
                OperationInput::Hash(hasher) => AnswerLength::Exact(hasher.hash().len()),
                _ => AnswerLength::Unknown,
            },
            // The token knows; on a curve it may be DER.
            (_, Function::Sign) if Mechanism::is_vendor_defined(self.mechanism.kind) => {
                let ec = self.key.as_ref().is_some_and(|key| key.kind == KeyKind::Ec);
                AnswerLength::at_most(of_key.map(|len| if ec { len + length::DER } else { len }))
            }
            (_, Function::Sign) => AnswerLength::exact(length::of_mac(&self.mechanism).or(of_key)),
            (_, Function::Encrypt) => AnswerLength::exact(tag.map(|tag| len + tag).or(of_key)),
            (_, Function::Decrypt) if tag.is_some() => {
                AnswerLength::exact(tag.map(|tag| len.saturating_sub(tag)))
            }
            _ => AnswerLength::at_most(of_key),
        }
    }
}
