//! AES-CBC for several callers at once: one C_DecryptInit and C_Decrypt for all, or one C_EncryptInit and a
//! C_EncryptUpdate for each. In a fast token the Init is most of the work (SoftHSM: 19 of 21 us).
//!
//! CBC combines each block with the one before it, and the first with the IV (NIST SP 800-38A, section
//! 6.2). So a text can follow another one in the same chain when its own IV, and what the chain has in that
//! place, are combined into its first block. Padding (PKCS #7) is put on and taken off here.
//!
//! What does not go well this way goes the usual way, one by one: errors are always the token's own.

use std::time::Instant;

use bytes::Bytes;
use hsmux_token::ck::{CKM_AES_CBC, CKM_AES_CBC_PAD, CKR_DEVICE_ERROR};
use hsmux_token::sync::Mutex;
use hsmux_token::{
    Error, Mechanism, ObjectId, ObjectRef, Operation, Outcome, Params, Result, Token, Verb,
};
use smallvec::SmallVec;
use zeroize::Zeroizing;

use crate::ModuleToken;
use crate::execute::is_about_handle;
use crate::library::{Handle, Session};
use crate::sessions::Purpose;

const BLOCK: usize = 16;

/// Longer texts are not worth a copy.
const LONGEST: usize = 4096;

/// Keys that the token does not use this way: with CKA_ALLOWED_MECHANISMS, for example.
#[derive(Default)]
pub(crate) struct Apart(Mutex<Vec<ObjectId>>);

/// Places of operations.
pub(crate) type Places = SmallVec<[usize; 16]>;

/// An operation that can be part of a chain.
struct Text<'a> {
    verb: Verb,
    key: ObjectId,
    iv: [u8; BLOCK],
    data: &'a [u8],
    padded: bool,
}

impl ModuleToken {
    /// Runs those that go well together, and answers which these were.
    pub(crate) fn run_together(
        &self,
        operations: &[(Operation, Instant)],
        tell: &mut dyn FnMut(usize, Result<Outcome>),
    ) -> Places {
        let mut told = Places::new();
        if operations.len() < 2 || self.info().mechanism(CKM_AES_CBC).is_none() {
            return told;
        }
        let texts = operations.iter().map(|(operation, _)| Text::of(operation));
        let texts: SmallVec<[_; 16]> = texts.collect();
        let mut seen = Places::new();
        for (place, text) in texts.iter().enumerate() {
            let Some(first) = text.as_ref().filter(|_| !seen.contains(&place)) else {
                continue;
            };
            let alike = |text: &Option<Text<'_>>| text.as_ref().is_some_and(|t| t.goes_with(first));
            let group = (place..texts.len()).filter(|at| alike(&texts[*at]));
            let group: Places = group.collect();
            seen.extend_from_slice(&group);
            if group.len() < 2 || self.apart.0.lock().contains(&first.key) {
                continue;
            }
            let chain: SmallVec<[_; 16]> =
                group.iter().filter_map(|at| texts[*at].as_ref()).collect();
            let deadline = operations[place].1;
            match self.run_chain(&chain, deadline) {
                Ok(answers) => {
                    for (at, answer) in group.into_iter().zip(answers) {
                        if let Some(bytes) = answer {
                            tell(at, Ok(Outcome::Bytes(bytes.into())));
                            told.push(at);
                        }
                    }
                }
                Err(error) if is_about_handle(&error) => {}
                Err(error) => {
                    tracing::debug!(%error, token = self.name, "texts are enciphered one by one");
                    self.apart.0.lock().push(first.key);
                }
            }
        }
        told
    }

    /// An answer for each text; `None` for one whose padding is wrong.
    fn run_chain(&self, chain: &[&Text<'_>], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        let [first, ..] = chain else {
            return Ok(Vec::new());
        };
        let handle = self.handle(&ObjectRef::Token(first.key))?;
        let mut lease = self.sessions.lease(Purpose::Work, deadline)?;
        let session = lease.session();
        let done = match first.verb {
            Verb::Encrypt => self.encrypt_chain(session, handle, first.iv, chain),
            _ => self.decrypt_chain(session, handle, first.iv, chain),
        };
        // The operation may still be active.
        done.inspect_err(|_| lease.retire())
    }

    fn encrypt_chain(
        &self,
        session: Session,
        key: Handle,
        iv: [u8; BLOCK],
        chain: &[&Text<'_>],
    ) -> Result<Vec<Option<Bytes>>> {
        let library = self.sessions.library();
        library.encrypt_init(session, &cbc(iv), key)?;
        let mut before = iv;
        let mut plain = Zeroizing::new(Vec::with_capacity(LONGEST + BLOCK));
        let mut answers = Vec::with_capacity(chain.len());
        for text in chain {
            plain.clear();
            plain.extend_from_slice(text.data);
            if text.padded {
                let (len, pad) = (text.data.len(), BLOCK - text.data.len() % BLOCK);
                plain.resize(len + pad, pad as u8);
            }
            swap_iv(&mut plain, &before, &text.iv);
            let mut sealed = vec![0; plain.len()];
            library.encrypt_update(session, &plain, &mut sealed)?;
            before = last_block(&sealed)?;
            answers.push(Some(sealed.into()));
        }
        library.encrypt_final(session)?;
        Ok(answers)
    }

    fn decrypt_chain(
        &self,
        session: Session,
        key: Handle,
        iv: [u8; BLOCK],
        chain: &[&Text<'_>],
    ) -> Result<Vec<Option<Bytes>>> {
        let sealed: Vec<&[u8]> = chain.iter().map(|text| text.data).collect();
        let sealed = sealed.concat();
        let library = self.sessions.library();
        let plain = library.crypt(session, Verb::Decrypt, &cbc(iv), key, &sealed)?;
        if plain.len() != sealed.len() {
            return Err(Error::vendor("C_Decrypt", CKR_DEVICE_ERROR));
        }
        let mut rest = &plain[..];
        let mut before = iv;
        let mut answers = Vec::with_capacity(chain.len());
        for text in chain {
            let (own, others) = rest.split_at(text.data.len());
            rest = others;
            let mut own = own.to_vec();
            swap_iv(&mut own, &before, &text.iv);
            before = last_block(text.data)?;
            answers.push(if text.padded {
                unpadded(own)
            } else {
                Some(own.into())
            });
        }
        Ok(answers)
    }
}

impl<'a> Text<'a> {
    fn of(operation: &'a Operation) -> Option<Self> {
        let Operation::Use {
            verb,
            key: ObjectRef::Token(key),
            mechanism,
            data,
        } = operation
        else {
            return None;
        };
        let Params::Bytes(iv) = &mechanism.params else {
            return None;
        };
        let padded = match mechanism.kind {
            CKM_AES_CBC_PAD => true,
            CKM_AES_CBC => false,
            _ => return None,
        };
        let blocks = !data.is_empty() && data.len().is_multiple_of(BLOCK);
        let fits = match verb {
            Verb::Encrypt => padded || blocks,
            Verb::Decrypt => blocks,
            _ => false,
        };
        (fits && data.len() <= LONGEST).then_some(Self {
            verb: *verb,
            key: *key,
            iv: (**iv).try_into().ok()?,
            data,
            padded,
        })
    }

    fn goes_with(&self, other: &Self) -> bool {
        self.verb == other.verb && self.key == other.key
    }
}

fn cbc(iv: [u8; BLOCK]) -> Mechanism {
    Mechanism::with_bytes(CKM_AES_CBC, iv.to_vec())
}

/// The first block as if the chain had begun with `iv`, where it goes on after the block `before`. The same
/// before enciphering and after deciphering.
fn swap_iv(text: &mut [u8], before: &[u8; BLOCK], iv: &[u8; BLOCK]) {
    for ((byte, before), iv) in text.iter_mut().zip(before).zip(iv) {
        *byte ^= before ^ iv;
    }
}

fn last_block(sealed: &[u8]) -> Result<[u8; BLOCK]> {
    let block = sealed.last_chunk().copied();
    block.ok_or_else(|| Error::vendor("C_EncryptUpdate", CKR_DEVICE_ERROR))
}

/// Without its padding; looks at every byte that may be padding, whatever the others are.
fn unpadded(mut text: Vec<u8>) -> Option<Bytes> {
    let block: [u8; BLOCK] = *text.last_chunk()?;
    let pad = block[BLOCK - 1];
    let mut wrong = u8::from(pad == 0) | u8::from(usize::from(pad) > BLOCK);
    for (at, byte) in block.iter().rev().enumerate() {
        wrong |= u8::from(at < usize::from(pad)) & u8::from(*byte != pad);
    }
    text.truncate(text.len().saturating_sub(pad.into()));
    (wrong == 0).then(|| text.into())
}
