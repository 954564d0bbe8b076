//! AES-CBC texts of several callers through one active operation, to save C_EncryptInit: `docs/internals/batching.md`.
//! A text follows another by adjusting its first block (NIST SP 800-38A, section 6.2). On failure it runs alone.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hsmux_token::ck::{CKM_AES_CBC, CKM_AES_CBC_PAD, CKR_DEVICE_ERROR};
use hsmux_token::{
    Error, Mechanism, ObjectId, ObjectRef, Operation, OperationKind, Outcome, Params, Result,
    Token, Verb,
};
use smallvec::SmallVec;
use zeroize::Zeroizing;

use crate::ModuleToken;
use crate::execute::is_about_handle;
use crate::library::{Library, Session};
use crate::streams::is_about_sessions;
use crate::worth::worth;

const BLOCK: usize = 16;

/// Longer texts are not worth a copy.
const LONGEST: usize = 4096;

/// The life of a stream, by the duration of its Init.
const LIFE: RangeInclusive<Duration> = Duration::from_millis(20)..=Duration::from_secs(1);

/// A text that comes within this time after another starts a stream.
pub(crate) const SOON: Duration = Duration::from_millis(20);

/// Positions of operations.
pub(crate) type Indexes = SmallVec<[usize; 16]>;

/// An active operation in its session.
pub(crate) struct Stream {
    pub(crate) session: Session,
    /// See [`Streams::edition`](crate::streams::Streams::edition).
    pub(crate) edition: u64,
    verb: Verb,
    key: ObjectId,
    /// The last ciphertext block, or the IV.
    before: [u8; BLOCK],
    ends: Instant,
}

/// An operation that fits a stream.
struct Text<'a> {
    verb: Verb,
    key: ObjectId,
    iv: [u8; BLOCK],
    data: &'a [u8],
    padded: bool,
}

impl ModuleToken {
    /// Runs an operation in a stream, if it fits and succeeds.
    pub(crate) fn run_in_stream(&self, operation: &Operation) -> Option<Outcome> {
        let text = Text::of(operation)?;
        self.info().mechanism(CKM_AES_CBC)?;
        let answer = self.pass(&[&text]).pop()??;
        Some(Outcome::Bytes(answer.into()))
    }

    /// Runs the operations that fit streams; returns which ones succeeded.
    pub(crate) fn run_in_streams(
        &self,
        operations: &[(Operation, Instant)],
        tell: &mut dyn FnMut(usize, Result<Outcome>),
    ) -> Indexes {
        let mut told = Indexes::new();
        // Signatures and other operations end here, after a cheap check.
        let texts = || operations.iter().map(|(operation, _)| Text::of(operation));
        if texts().all(|text| text.is_none()) || self.info().mechanism(CKM_AES_CBC).is_none() {
            return told;
        }
        let texts: SmallVec<[_; 16]> = texts().collect();
        let mut seen = Indexes::new();
        for (index, text) in texts.iter().enumerate() {
            let Some(first) = text.as_ref().filter(|_| !seen.contains(&index)) else {
                continue;
            };
            let alike = |text: &Option<Text<'_>>| text.as_ref().is_some_and(|t| t.goes_with(first));
            let group = (index..texts.len()).filter(|at| alike(&texts[*at]));
            let group: Indexes = group.collect();
            seen.extend_from_slice(&group);
            let together: SmallVec<[_; 16]> =
                group.iter().filter_map(|at| texts[*at].as_ref()).collect();
            for (at, answer) in group.into_iter().zip(self.pass(&together)) {
                if let Some(bytes) = answer {
                    tell(at, Ok(Outcome::Bytes(bytes.into())));
                    told.push(at);
                }
            }
        }
        told
    }

    /// An answer for each text of one verb and key; `None` for those that have to run alone.
    fn pass(&self, texts: &[&Text<'_>]) -> Vec<Option<Bytes>> {
        let key = texts[0].key;
        let found = self.streams.find(texts[0].verb, key);
        let passed = match found {
            Some(stream) => self.go_on(stream, texts),
            None if texts.len() < 2 && !self.streams.follows(texts[0].verb, key) => {
                return Vec::new();
            }
            None => self.begin(texts),
        };
        passed.unwrap_or_else(|error| {
            // A missing session or key is reported by the single operation.
            if error.code().is_some() && !is_about_handle(&error) && !is_about_sessions(&error) {
                tracing::debug!(%error, token = self.name, "texts are enciphered one by one");
                self.streams.keep_apart(key);
            }
            Vec::new()
        })
    }

    fn go_on(&self, mut stream: Stream, texts: &[&Text<'_>]) -> Result<Vec<Option<Bytes>>> {
        let passed = stream.pass(self.sessions.library(), texts);
        match &passed {
            Ok(_) => self.streams.leave(&self.sessions, stream),
            // The operation may still be active.
            Err(_) => self.streams.close(&self.sessions, stream.session),
        }
        passed
    }

    fn begin(&self, texts: &[&Text<'_>]) -> Result<Vec<Option<Bytes>>> {
        let first = texts[0];
        let Some(edition) = self.streams.edition(first.key) else {
            return Ok(Vec::new());
        };
        let handle = self.handle(&ObjectRef::Token(first.key))?;
        let Some(session) = self
            .streams
            .session(&self.sessions, first.verb, first.key)?
        else {
            return Ok(Vec::new());
        };
        let handle = self.in_use(session, first.key, handle);
        let begun = Instant::now();
        let library = self.sessions.library();
        let init = library.begin(session, first.verb, &cbc(first.iv), handle);
        if let Err(error) = init {
            self.streams.close(&self.sessions, session);
            return Err(error);
        }
        let stream = Stream::new(session, edition, first, begun);
        let mut passed = self.go_on(stream, &texts[..1])?;
        self.note(first, begun);
        if texts.len() == 1 {
            return Ok(passed);
        }
        // Another thread may have taken the stream; then the remaining texts run alone.
        if let Some(stream) = self.streams.find(first.verb, first.key) {
            passed.extend(self.go_on(stream, &texts[1..])?);
        }
        Ok(passed)
    }

    /// Records durations. The first text of a stream takes as long as a single operation.
    fn note(&self, text: &Text<'_>, begun: Instant) {
        if self.paces.begin().is_some() {
            let kind = if text.padded {
                CKM_AES_CBC_PAD
            } else {
                CKM_AES_CBC
            };
            let work = OperationKind::new(text.verb, kind, text.data.len(), text.data.len());
            self.paces.note(work, text.key, begun.elapsed());
        }
    }
}

impl Stream {
    /// A stream whose Init started at `begun` and is done.
    fn new(session: Session, edition: u64, first: &Text<'_>, begun: Instant) -> Self {
        let now = Instant::now();
        Self {
            session,
            edition,
            verb: first.verb,
            key: first.key,
            before: first.iv,
            ends: now + worth(now - begun, &LIFE),
        }
    }

    /// Its verb.
    pub(crate) fn verb(&self) -> Verb {
        self.verb
    }

    /// Its key.
    pub(crate) fn key(&self) -> ObjectId {
        self.key
    }

    /// Whether it has this verb and key.
    pub(crate) fn is_of(&self, verb: Verb, key: ObjectId) -> bool {
        self.verb == verb && self.key == key
    }

    /// Whether it is young enough to continue.
    pub(crate) fn is_young(&self) -> bool {
        Instant::now() < self.ends
    }

    /// An answer for each text; `None` for wrong padding.
    fn pass(&mut self, library: &Library, texts: &[&Text<'_>]) -> Result<Vec<Option<Bytes>>> {
        match self.verb {
            Verb::Encrypt => self.encrypt(library, texts),
            _ => self.decrypt(library, texts),
        }
    }

    fn encrypt(&mut self, library: &Library, texts: &[&Text<'_>]) -> Result<Vec<Option<Bytes>>> {
        let longest = texts.iter().map(|text| text.data.len()).max().unwrap_or(0);
        let mut plain = Zeroizing::new(Vec::with_capacity(longest + BLOCK));
        let mut answers = Vec::with_capacity(texts.len());
        for text in texts {
            plain.clear();
            plain.extend_from_slice(text.data);
            if text.padded {
                let (len, pad) = (text.data.len(), BLOCK - text.data.len() % BLOCK);
                plain.resize(len + pad, pad as u8);
            }
            swap_iv(&mut plain, &self.before, &text.iv);
            let mut sealed = vec![0; plain.len()];
            library.next_part(self.session, self.verb, &plain, &mut sealed)?;
            self.before = last_block(&sealed)?;
            answers.push(Some(sealed.into()));
        }
        Ok(answers)
    }

    /// Decrypts all texts in one call.
    fn decrypt(&mut self, library: &Library, texts: &[&Text<'_>]) -> Result<Vec<Option<Bytes>>> {
        let sealed = match texts {
            [] => return Ok(Vec::new()),
            [text] => Cow::Borrowed(text.data),
            _ => Cow::Owned(texts.iter().flat_map(|text| text.data).copied().collect()),
        };
        let mut plain = Zeroizing::new(vec![0; sealed.len()]);
        library.next_part(self.session, self.verb, &sealed, &mut plain)?;
        let mut rest = &plain[..];
        let mut answers = Vec::with_capacity(texts.len());
        for text in texts {
            let (own, others) = rest.split_at(text.data.len());
            rest = others;
            let mut own = own.to_vec();
            swap_iv(&mut own, &self.before, &text.iv);
            self.before = last_block(text.data)?;
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
        let (verb, key, mechanism, data) = operation.key_use()?;
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
            verb,
            key,
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

/// Replaces `iv` by the block `before` in the first block, where the stream continues.
/// The operation is the same before encryption and after decryption.
fn swap_iv(text: &mut [u8], before: &[u8; BLOCK], iv: &[u8; BLOCK]) {
    for ((byte, before), iv) in text.iter_mut().zip(before).zip(iv) {
        *byte ^= before ^ iv;
    }
}

fn last_block(sealed: &[u8]) -> Result<[u8; BLOCK]> {
    let block = sealed.last_chunk().copied();
    block.ok_or_else(|| Error::vendor("C_EncryptUpdate", CKR_DEVICE_ERROR))
}

/// Removes the padding. Checks every byte that may be padding, whatever the others are: no timing oracle.
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
