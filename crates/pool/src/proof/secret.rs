//! A secret key proves itself against a copy that serves already.
//!
//! The first seat in the order of the configuration that holds the key is trusted: the
//! administrator names it by that order. Everybody else has to do with the key what the trusted
//! copy does, on random data.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::{
    Attributes, Blob, Error, Gcm, KeyKind, Kind, Mechanism, Object, Operation, Outcome, Params,
    Result, Verb, ck,
};

use super::{Finding, has, not_this_way, random, readable_secret};
use crate::catalogue::{Catalogue, ReplicaState};
use crate::core::Core;
use crate::record::Connection;

/// How long a seat waits for those before it in the configuration, which may hold the trusted copy.
const GRACE: Duration = Duration::from_secs(10);

pub(super) fn prove(
    core: &Arc<Core>,
    candidate: &Arc<Connection>,
    object: &Object,
) -> Result<Finding> {
    match trusted_copy(core, candidate, object) {
        None => Ok(Finding::Proved),
        // That it was another worker which came first is known only after waiting for it.
        Some(trusted) if trusted.shares_token_with(candidate) => Ok(Finding::Proved),
        Some(trusted) => Pair {
            core,
            trusted: &trusted,
            candidate,
            object,
        }
        .compare(),
    }
}

/// Compares with the copy of this connection.
pub(super) fn prove_against(
    core: &Arc<Core>,
    trusted: &Arc<Connection>,
    candidate: &Arc<Connection>,
    object: &Object,
) -> Result<Finding> {
    let pair = Pair {
        core,
        trusted,
        candidate,
        object,
    };
    pair.compare()
}

/// Work that both can do with the key, on random data. ECB comes first: a worker goes on with one operation of CBC
/// (`module/src/stream.rs`), which does not cost what others cost.
pub(super) fn samples(
    core: &Arc<Core>,
    trusted: &Arc<Connection>,
    candidate: &Arc<Connection>,
    object: &Object,
) -> Result<Vec<Operation>> {
    let pair = Pair {
        core,
        trusted,
        candidate,
        object,
    };
    let allowed = |usage| object.attributes.flag(usage) != Some(false);
    let mut samples = Vec::new();
    let mut ciphers = pair.ciphers()?;
    ciphers.reverse();
    let encrypts = ciphers.iter().cloned().chain(pair.gcm()?).collect();
    let verbs = [
        (Verb::Encrypt, allowed(ck::CKA_ENCRYPT), encrypts),
        (Verb::Decrypt, allowed(ck::CKA_DECRYPT), ciphers),
        (Verb::Sign, allowed(ck::CKA_SIGN), pair.macs()),
    ];
    for (verb, _, mechanisms) in verbs.into_iter().filter(|(_, allowed, _)| *allowed) {
        for mechanism in mechanisms {
            samples.push(Operation::Use {
                verb,
                key: object.id.into(),
                mechanism,
                data: random::<32>()?.to_vec().into(),
            });
        }
    }
    Ok(samples)
}

/// The connection whose copy is trusted; `None` if it is the candidate's own.
fn trusted_copy(
    core: &Arc<Core>,
    candidate: &Arc<Connection>,
    object: &Object,
) -> Option<Arc<Connection>> {
    let until = Instant::now() + GRACE;
    let mut moved = core.moved.0.lock();
    loop {
        let catalogue = core.catalogue.load();
        if let Some(trusted) = serving_copy(core, &catalogue, candidate, object) {
            return Some(trusted);
        }
        let first = !someone_before(&catalogue, candidate, object);
        if first || !core.options.threads || !candidate.is_current() {
            return None;
        }
        if core.moved.1.wait_until(&mut moved, until) {
            return None;
        }
    }
}

/// A serving copy, on another member rather than on another worker of the same.
fn serving_copy(
    core: &Core,
    catalogue: &Catalogue,
    candidate: &Connection,
    object: &Object,
) -> Option<Arc<Connection>> {
    let replicas = &catalogue.entries.get(&object.id)?.replicas;
    let own = &candidate.record;
    let serving = replicas
        .iter()
        .filter(|replica| replica.state == ReplicaState::Serving && replica.index != own.index);
    let mut serving: Vec<_> = serving.collect();
    serving.sort_by_key(|replica| replica.member == own.member);
    serving.into_iter().find_map(|replica| {
        let record = core.record(replica.index)?;
        let life = record.life.lock();
        life.connection.clone()
    })
}

/// Whether a seat before this one may turn out to hold the key.
fn someone_before(catalogue: &Catalogue, candidate: &Connection, object: &Object) -> bool {
    let index = candidate.record.index;
    let unsettled = catalogue.unsettled.iter().any(|seat| seat < index);
    let Some(entry) = catalogue.entries.get(&object.id) else {
        return unsettled;
    };
    unsettled
        || entry.replicas.iter().any(|replica| {
            replica.index < index
                && catalogue.in_service.contains(replica.index)
                && matches!(replica.state, ReplicaState::Proving | ReplicaState::Away)
        })
}

struct Pair<'a> {
    core: &'a Arc<Core>,
    trusted: &'a Arc<Connection>,
    candidate: &'a Arc<Connection>,
    object: &'a Object,
}

impl Pair<'_> {
    fn compare(&self) -> Result<Finding> {
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
            return Ok(self.verdict(same));
        }
        Ok(Finding::Not(format!(
            "{} and this token have no mechanism in common by which the key could prove itself; \
             make one that may encipher or sign on both",
            self.trusted.record.name
        )))
    }

    fn verdict(&self, same: bool) -> Finding {
        if same {
            Finding::Proved
        } else {
            Finding::Not(format!(
                "it is another key than the one on {}; delete the wrong one, then hsmux key clone",
                self.trusted.record.name
            ))
        }
    }

    /// What one enciphers, the other deciphers, in both directions.
    fn by_exchange(&self) -> Result<Option<bool>> {
        for mechanism in self.ciphers()? {
            let challenge = random::<32>()?;
            let mut same = true;
            let mut tried = true;
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
            }
            if tried {
                return Ok(Some(same));
            }
        }
        Ok(None)
    }

    /// Both give the same answer to the same random question.
    fn by_doing_the_same(&self, verb: Verb) -> Result<Option<bool>> {
        let mechanisms = match verb {
            Verb::Sign => self.macs(),
            _ => self.ciphers()?,
        };
        let challenge = random::<32>()?;
        for mechanism in mechanisms {
            let expected = self.use_key(self.trusted, verb, &mechanism, &challenge)?;
            let answer = self.use_key(self.candidate, verb, &mechanism, &challenge)?;
            if let (Some(expected), Some(answer)) = (expected, answer) {
                return Ok(Some(expected == answer));
            }
        }
        Ok(None)
    }

    /// What one wraps, the other unwraps.
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

    fn ciphers(&self) -> Result<Vec<Mechanism>> {
        let (cbc, ecb, block) = match self.key_kind() {
            KeyKind::Aes => (ck::CKM_AES_CBC, ck::CKM_AES_ECB, 16),
            KeyKind::Des3 => (ck::CKM_DES3_CBC, ck::CKM_DES3_ECB, 8),
            _ => return Ok(Vec::new()),
        };
        let iv = random::<16>()?[..block].to_vec();
        let mut ciphers = vec![Mechanism::with_bytes(cbc, iv), Mechanism::plain(ecb)];
        ciphers.retain(|mechanism| self.both_have(mechanism));
        Ok(ciphers)
    }

    /// To encrypt alone: what is no ciphertext of it is not decrypted.
    fn gcm(&self) -> Result<Option<Mechanism>> {
        if self.key_kind() != KeyKind::Aes {
            return Ok(None);
        }
        let gcm = Mechanism {
            kind: ck::CKM_AES_GCM,
            params: Params::Gcm(Gcm {
                iv: random::<12>()?.to_vec().into(),
                aad: Blob::default(),
                tag_bits: 128,
            }),
        };
        Ok(Some(gcm).filter(|gcm| self.both_have(gcm)))
    }

    fn macs(&self) -> Vec<Mechanism> {
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

    /// `None`: not this way.
    fn use_key(
        &self,
        at: &Arc<Connection>,
        verb: Verb,
        mechanism: &Mechanism,
        data: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let operation = Operation::Use {
            verb,
            key: self.object.id.into(),
            mechanism: mechanism.clone(),
            data: data.to_vec().into(),
        };
        let outcome = self.ask(at, &operation)?;
        outcome
            .map(|outcome| Ok(outcome.into_bytes()?.to_vec()))
            .transpose()
    }

    fn ask(&self, at: &Arc<Connection>, operation: &Operation) -> Result<Option<Outcome>> {
        match self.core.on(at, operation) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(error) if not_this_way(&error) => Ok(None),
            // What fails on the trusted copy says nothing about the candidate's.
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
