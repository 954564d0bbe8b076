//! Two copies of a secret key, compared by what they do.

use std::sync::Arc;

use hsmux_token::{
    Attributes, Error, KeyKind, Kind, Mechanism, Object, Operation, Outcome, Result, Verb, ck,
};

use super::answers::ProofAnswer;
use super::{Finding, has, not_this_way, random, readable_secret};
use crate::core::Core;
use crate::record::SeatConnection;

/// Two connections with a copy of a key each, one of which is believed.
pub(super) struct Pair<'a> {
    pub core: &'a Arc<Core>,
    pub trusted: &'a Arc<SeatConnection>,
    pub candidate: &'a Arc<SeatConnection>,
    pub object: &'a Object,
}

/// The result: whether both have the same key, and an answer of the key that can be asked for again.
type Comparison = Option<(bool, Option<ProofAnswer>)>;

impl Pair<'_> {
    /// Compares them. Answers the finding, and an answer of the key that can be asked for again.
    pub fn compare(&self) -> Result<(Finding, Option<ProofAnswer>)> {
        let allowed = |usage| self.object.attributes.flag(usage) != Some(false);
        let encrypts = allowed(ck::CKA_ENCRYPT);
        let decrypts = allowed(ck::CKA_DECRYPT);
        if encrypts
            && decrypts
            && let Some(same) = self.by_exchange()?
        {
            return Ok(self.verdict(same));
        }
        let verbs = [
            (Verb::Sign, allowed(ck::CKA_SIGN)),
            (Verb::Encrypt, encrypts),
            (Verb::Decrypt, decrypts),
        ];
        for (verb, _) in verbs.into_iter().filter(|(_, allowed)| *allowed) {
            if let Some(same) = self.by_doing_the_same(verb)? {
                return Ok(self.verdict(same));
            }
        }
        if let Some(same) = self.by_wrapping()? {
            return Ok(self.verdict((same, None)));
        }
        let finding = Finding::Not(format!(
            "{} and this token have no mechanism in common by which the key could prove itself; \
             make one that may encipher or sign on both",
            self.trusted.record.name
        ));
        Ok((finding, None))
    }

    fn verdict(
        &self,
        (same, answer): (bool, Option<ProofAnswer>),
    ) -> (Finding, Option<ProofAnswer>) {
        if same {
            return (Finding::Proved, answer);
        }
        let finding = Finding::Not(format!(
            "it is another key than the one on {}; delete the wrong one, then hsmux key clone",
            self.trusted.record.name
        ));
        (finding, None)
    }

    /// Each decrypts what the other encrypts.
    fn by_exchange(&self) -> Result<Comparison> {
        for mechanism in self.ciphers()? {
            let challenge = random::<32>()?;
            let mut same = true;
            let mut tried = true;
            let mut answer = None;
            for (from, to) in [
                (self.trusted, self.candidate),
                (self.candidate, self.trusted),
            ] {
                let Some(sealed) = self.use_key(from, Verb::Encrypt, &mechanism, &challenge)?
                else {
                    tried = false;
                    break;
                };
                let Some(opened) = self.use_key(to, Verb::Decrypt, &mechanism, &sealed)? else {
                    tried = false;
                    break;
                };
                same &= opened == challenge;
                answer = Some(self.answer(Verb::Encrypt, &mechanism, &challenge, sealed));
            }
            if tried {
                return Ok(Some((same, answer)));
            }
        }
        Ok(None)
    }

    /// Both give the same answer to the same random question.
    fn by_doing_the_same(&self, verb: Verb) -> Result<Comparison> {
        let mechanisms = match verb {
            Verb::Sign => self.macs(),
            _ => self.ciphers()?,
        };
        let challenge = random::<32>()?;
        for mechanism in mechanisms {
            let expected = self.use_key(self.trusted, verb, &mechanism, &challenge)?;
            let answer = self.use_key(self.candidate, verb, &mechanism, &challenge)?;
            if let (Some(expected), Some(answer)) = (expected, answer) {
                let same = expected == answer;
                let known = self.answer(verb, &mechanism, &challenge, answer);
                return Ok(Some((same, Some(known))));
            }
        }
        Ok(None)
    }

    /// One unwraps what the other wraps.
    fn by_wrapping(&self) -> Result<Option<bool>> {
        let value = random::<16>()?;
        for kind in [
            ck::CKM_AES_KEY_WRAP_PAD,
            ck::CKM_AES_KEY_WRAP,
            ck::CKM_AES_CBC_PAD,
        ] {
            let mechanism = match kind {
                ck::CKM_AES_CBC_PAD => Mechanism::with_bytes(kind, random::<16>()?.to_vec()),
                _ => Mechanism::plain(kind),
            };
            if !self.both_have(&mechanism) || self.key_kind() != KeyKind::Aes {
                continue;
            }
            let template = readable_secret().with(ck::CKA_VALUE, value.to_vec());
            let wrapped = self.wrap_on_trusted(template, &mechanism)?;
            let Some(wrapped) = wrapped else { continue };
            let unwrap = Operation::Unwrap {
                unwrapping: self.object.id.into(),
                mechanism,
                wrapped: wrapped.into(),
                template: readable_secret(),
            };
            let opened = super::make_and_read(self.core, self.candidate, &unwrap);
            return match opened {
                Ok(opened) => Ok(opened.map(|opened| opened == value)),
                Err(error) if error.code() == Some(ck::CKR_WRAPPED_KEY_INVALID) => Ok(Some(false)),
                Err(error) if not_this_way(&error) => Ok(None),
                Err(error) => Err(error),
            };
        }
        Ok(None)
    }

    fn wrap_on_trusted(
        &self,
        template: Attributes,
        mechanism: &Mechanism,
    ) -> Result<Option<Vec<u8>>> {
        let Some(made) = self.ask(
            self.trusted,
            &Operation::Create {
                template,
                near: None,
            },
        )?
        else {
            return Ok(None);
        };
        let Some(session) = made
            .into_objects()?
            .into_iter()
            .find_map(|made| made.session)
        else {
            return Ok(None);
        };
        let wrapped = self.ask(
            self.trusted,
            &Operation::Wrap {
                wrapping: self.object.id.into(),
                mechanism: mechanism.clone(),
                key: hsmux_token::ObjectRef::Session(session),
            },
        );
        super::destroy(self.core, self.trusted, session);
        wrapped?
            .map(|wrapped| Ok(wrapped.into_bytes()?.to_vec()))
            .transpose()
    }

    fn key_kind(&self) -> KeyKind {
        KeyKind::of(
            self.object
                .attributes
                .number(ck::CKA_KEY_TYPE)
                .unwrap_or(u64::MAX),
        )
    }

    pub fn ciphers(&self) -> Result<Vec<Mechanism>> {
        let Some(cipher) = self.key_kind().block_cipher() else {
            return Ok(Vec::new());
        };
        let iv = random::<16>()?[..cipher.len].to_vec();
        let mut ciphers = vec![
            Mechanism::with_bytes(cipher.cbc, iv),
            Mechanism::plain(cipher.ecb),
        ];
        ciphers.retain(|mechanism| self.both_have(mechanism));
        Ok(ciphers)
    }

    pub fn macs(&self) -> Vec<Mechanism> {
        let kinds = match self.key_kind() {
            KeyKind::Aes => &[ck::CKM_AES_CMAC, ck::CKM_AES_MAC][..],
            KeyKind::Des3 => &[ck::CKM_DES3_CMAC],
            KeyKind::Generic => &[
                ck::CKM_SHA256_HMAC,
                ck::CKM_SHA_1_HMAC,
                ck::CKM_SHA224_HMAC,
                ck::CKM_SHA384_HMAC,
                ck::CKM_SHA512_HMAC,
            ],
            _ => &[],
        };
        let mut macs: Vec<_> = kinds.iter().map(|kind| Mechanism::plain(*kind)).collect();
        macs.retain(|mechanism| self.both_have(mechanism));
        macs
    }

    fn both_have(&self, mechanism: &Mechanism) -> bool {
        has(self.trusted, mechanism) && has(self.candidate, mechanism)
    }

    fn answer(
        &self,
        verb: Verb,
        mechanism: &Mechanism,
        data: &[u8],
        answer: Vec<u8>,
    ) -> ProofAnswer {
        ProofAnswer::new(self.question(verb, mechanism, data), answer)
    }

    pub fn question(&self, verb: Verb, mechanism: &Mechanism, data: &[u8]) -> Operation {
        Operation::Use {
            verb,
            key: self.object.id.into(),
            mechanism: mechanism.clone(),
            data: data.to_vec().into(),
        }
    }

    /// `None`: not this way.
    fn use_key(
        &self,
        at: &Arc<SeatConnection>,
        verb: Verb,
        mechanism: &Mechanism,
        data: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let outcome = self.ask(at, &self.question(verb, mechanism, data))?;
        outcome
            .map(|outcome| Ok(outcome.into_bytes()?.to_vec()))
            .transpose()
    }

    fn ask(&self, at: &Arc<SeatConnection>, operation: &Operation) -> Result<Option<Outcome>> {
        match self.core.on(at, operation) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(error) if not_this_way(&error) => Ok(None),
            // A failure of the trusted copy says nothing about the candidate.
            Err(error) if Arc::ptr_eq(at, self.trusted) => Err(Error::pool(
                Kind::Unproved,
                format!(
                    "the copy to compare with failed: {}: {error}",
                    at.record.name
                ),
            )),
            Err(error) => Err(error),
        }
    }
}
