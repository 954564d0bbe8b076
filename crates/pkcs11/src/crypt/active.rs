//! An operation between its Init and its end.

use std::sync::Arc;

use bytes::Bytes;
use hsmux_token::ck::*;
use hsmux_token::{KeyKind, Mechanism, Operation};

use super::function::Function;
use super::input::Input;
use super::length::{self, Length};
use super::target::Target;
use crate::app::App;
use crate::entry::Output;
use crate::object::Entry;
use crate::rv::{Result, Rv};

/// An operation under way. After an error other than CKR_BUFFER_TOO_SMALL it is over.
#[derive(Clone)]
pub struct Active {
    /// Which function it is of.
    pub function: Function,
    /// What the key's owner is asked for: of the application's mechanism, the part behind the hash.
    pub(super) mechanism: Mechanism,
    pub(super) input: Input,
    pub(super) target: Target,
    pub(super) key: Option<Arc<Entry>>,
    /// Whether parts have come.
    pub(super) begun: bool,
    /// Whether the key still waits for C_Login as CKU_CONTEXT_SPECIFIC.
    pub(super) locked: bool,
    /// An answer whose length could not be foretold, and for which there was no room.
    pub(super) kept: Option<Kept>,
}

/// An answer that waits for a larger buffer.
#[derive(Clone)]
pub(super) struct Kept {
    data: Bytes,
    answer: Bytes,
}

impl Active {
    /// C_Sign, C_Encrypt and their like: all data at once.
    pub fn whole(&mut self, app: &App, data: &[u8], out: &mut Output) -> Result {
        if self.begun {
            return Err(Rv(CKR_OPERATION_ACTIVE));
        }
        let length = match &self.input {
            Input::Blocks(blocks) => blocks.whole_length(data.len())?,
            _ => self.length(data.len()),
        };
        self.deliver(data, out, length, |this| match &this.input {
            Input::Blocks(blocks) => blocks.whole(data, &|mechanism, data| {
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
        let Input::Blocks(blocks) = &mut self.input else {
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

    /// Refuses what answers at its end only: nobody else could follow its plain text.
    pub fn in_parts(&self) -> Result {
        match self.input {
            Input::Blocks(_) => Ok(()),
            Input::Gather(_) | Input::Hash(_) => Err(Rv(CKR_FUNCTION_NOT_SUPPORTED)),
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
            Input::Blocks(blocks) => blocks.finish_length(),
            _ => self.length(0),
        };
        self.deliver(&[], out, length, |this| match &this.input {
            Input::Blocks(blocks) => {
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

    /// What a member is asked in the end, for who asks by himself.
    pub fn operation(&self, last: &[u8]) -> Result<Operation> {
        match &self.target {
            Target::Member(asked) => Ok(asked.operation(&self.mechanism, self.data(last)?)),
            Target::Digest | Target::Public(_) => Err(Rv(CKR_KEY_TYPE_INCONSISTENT)),
        }
    }

    /// The key has been given its PIN; `false` if it did not wait for one.
    pub fn unlock(&mut self) -> bool {
        std::mem::take(&mut self.locked)
    }

    /// Whether the key waits for its PIN.
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    /// Whether its key is a private object.
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
        length: Length,
        work: impl FnOnce(&Self) -> Result<Bytes>,
    ) -> Result {
        match length {
            Length::Exact(len) if out.is_query() || out.room() < len => return out.put_length(len),
            Length::AtMost(len) if out.is_query() => return out.put_length(len),
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
        self.give(Kept { data, answer }, out)
    }

    fn give(&mut self, kept: Kept, out: &mut Output) -> Result {
        let given = out.put(&kept.answer);
        self.kept = Some(kept);
        given
    }

    /// Length of the answer to what has come and `more` bytes, for what is not done in blocks.
    fn length(&self, more: usize) -> Length {
        let len = self.input.gathered() + more;
        let of_key = self.key.as_ref().and_then(|key| key.signature_len());
        let tag = length::of_tag(&self.mechanism);
        match (&self.target, self.function) {
            (Target::Digest, _) => match &self.input {
                Input::Hash(hasher) => Length::Exact(hasher.hash().len()),
                _ => Length::Unknown,
            },
            // The token knows; on a curve it may be DER.
            (_, Function::Sign) if Mechanism::is_vendor_defined(self.mechanism.kind) => {
                let ec = self.key.as_ref().is_some_and(|key| key.kind == KeyKind::Ec);
                Length::at_most(of_key.map(|len| if ec { len + length::DER } else { len }))
            }
            (_, Function::Sign) => Length::exact(length::of_mac(&self.mechanism).or(of_key)),
            (_, Function::Encrypt) => Length::exact(tag.map(|tag| len + tag).or(of_key)),
            (_, Function::Decrypt) if tag.is_some() => {
                Length::exact(tag.map(|tag| len.saturating_sub(tag)))
            }
            _ => Length::at_most(of_key),
        }
    }
}
