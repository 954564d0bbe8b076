//! A private key proves itself against its public half, which the host checks in software.

use std::sync::Arc;

use hsmux_software::{PublicKey, digest, prehashed_input, unchecked_kind};
use hsmux_token::{
    Blob, Error, Hash, KeyKind, Kind, Mechanism, Oaep, Object, ObjectId, Operation, Params, Pss,
    Result, Verb, ck,
};

use super::{Finding, has, not_this_way, random, readable_secret};
use crate::core::Core;
use crate::record::SeatConnection;

/// The beginning of every challenge. So no proof yields a signature over anything else.
const DOMAIN: &[u8] = b"hsmux replica proof v1";

pub(super) fn prove(
    core: &Arc<Core>,
    connection: &Arc<SeatConnection>,
    object: &Object,
) -> Result<Finding> {
    if unchecked_kind(&object.attributes).is_some() {
        return alone_on_its_token(core, connection, object);
    }
    let Ok(public) = PublicKey::from_attributes(&object.attributes) else {
        return Ok(without_public_half(object));
    };
    if ObjectId::of_public_key(object.id.class, public.spki()) != object.id {
        return Ok(Finding::Not(
            "its public key is not the one that it is named by; delete it there, then hsmux key clone"
                .into(),
        ));
    }
    let candidate = Candidate {
        core,
        connection,
        object,
        public,
    };
    let allowed = |usage| object.attributes.flag(usage) != Some(false);
    let ways: [(u64, Way<'_>); 4] = [
        (ck::CKA_SIGN, Candidate::by_signing),
        (ck::CKA_DECRYPT, Candidate::by_decrypting),
        (ck::CKA_UNWRAP, Candidate::by_unwrapping),
        (ck::CKA_DERIVE, Candidate::by_deriving),
    ];
    for (usage, way) in ways {
        if allowed(usage)
            && let Some(finding) = way(&candidate)?
        {
            return Ok(finding);
        }
    }
    Ok(Finding::Not(
        "the token offers no mechanism by which this key could prove itself; make one that may \
         sign, decrypt, unwrap or derive there"
            .into(),
    ))
}

/// Such a key is named by its token's serial number, so that no other member can claim to hold it.
fn without_public_half(object: &Object) -> Finding {
    let known = object
        .attributes
        .get(ck::CKA_PUBLIC_KEY_INFO)
        .is_some_and(|info| !info.is_empty());
    if known {
        let why = "its public key is of a kind that hsmux cannot check; use RSA or a common curve";
        Finding::Not(why.into())
    } else {
        Finding::Proved
    }
}

/// A key that hsmux cannot check serves if nothing on its token can be mistaken for it.
fn alone_on_its_token(
    core: &Arc<Core>,
    connection: &Arc<SeatConnection>,
    object: &Object,
) -> Result<Finding> {
    // The catalogue's mark is only a suspicion: a key that was changed has the mark as well.
    let suspected = core.has_twins(connection, &object.id);
    let is_alone = !suspected || {
        let now = connection.token.objects()?;
        let same = now.objects.iter().filter(|other| other.id == object.id);
        same.count() < 2
    };
    Ok(if is_alone {
        Finding::Proved
    } else {
        Finding::Not(
            "another private key of this token has the same type, parameters, CKA_ID and label, so hsmux cannot tell \
             which is which; give one of them another CKA_ID there, then hsmux key verify"
                .into(),
        )
    })
}

type Way<'a> = fn(&Candidate<'a>) -> Result<Option<Finding>>;

struct Candidate<'a> {
    core: &'a Arc<Core>,
    connection: &'a Arc<SeatConnection>,
    object: &'a Object,
    public: PublicKey,
}

impl Candidate<'_> {
    fn by_signing(&self) -> Result<Option<Finding>> {
        let challenge = self.challenge()?;
        for (mechanism, data) in self.signable(&challenge) {
            if !has(self.connection, &mechanism) {
                continue;
            }
            match self.use_key(Verb::Sign, &mechanism, data.clone()) {
                Ok(signature) => {
                    let checked = self.public.verify(&mechanism, &data, &signature);
                    return Ok(Some(match checked {
                        Err(error) if error.kind() == Kind::Unsupported => {
                            Finding::Not(error.to_string())
                        }
                        checked => verdict(checked.is_ok()),
                    }));
                }
                Err(error) if not_this_way(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn challenge(&self) -> Result<Vec<u8>> {
        let serial = self.connection.info.serial.as_bytes();
        Ok([DOMAIN, serial, &random::<32>()?].concat())
    }

    /// Mechanisms with what they take, the most common first.
    fn signable(&self, challenge: &[u8]) -> Vec<(Mechanism, Vec<u8>)> {
        let hashed = digest(Hash::Sha256, challenge);
        let whole = |kind| (Mechanism::plain(kind), challenge.to_vec());
        match self.public.kind() {
            KeyKind::Rsa => {
                let pkcs = Mechanism::plain(ck::CKM_RSA_PKCS);
                let info = prehashed_input(Hash::Sha256, &pkcs, &hashed).into_owned();
                let pss = Mechanism {
                    kind: ck::CKM_RSA_PKCS_PSS,
                    params: Params::Pss(Pss {
                        hash: ck::CKM_SHA256,
                        mgf: ck::CKG_MGF1_SHA256,
                        salt: 32,
                    }),
                };
                vec![whole(ck::CKM_SHA256_RSA_PKCS), (pkcs, info), (pss, hashed)]
            }
            KeyKind::Ec => {
                // Some tokens refuse a hash that is longer than the curve's order.
                let fits = hashed.len().min(self.public.signature_len() / 2);
                let raw = Mechanism::plain(ck::CKM_ECDSA);
                vec![
                    (raw, hashed[..fits].to_vec()),
                    whole(ck::CKM_ECDSA_SHA256),
                    whole(ck::CKM_ECDSA_SHA1),
                ]
            }
            KeyKind::Edwards => vec![whole(ck::CKM_EDDSA)],
            _ => Vec::new(),
        }
    }

    fn by_decrypting(&self) -> Result<Option<Finding>> {
        let secret = random::<16>()?;
        for mechanism in self.ciphers() {
            let sealed = self.public.encrypt(&mechanism, &secret)?;
            match self.use_key(Verb::Decrypt, &mechanism, sealed) {
                Ok(opened) => return Ok(Some(verdict(opened == secret))),
                Err(error) if not_this_way(&error) => {}
                Err(error) if refuses_text(&error) => return Ok(Some(verdict(false))),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Unwraps a random secret as a session object that may be read, and reads it.
    fn by_unwrapping(&self) -> Result<Option<Finding>> {
        let secret = random::<16>()?;
        for mechanism in self.ciphers() {
            let unwrap = Operation::Unwrap {
                unwrapping: self.object.id.into(),
                wrapped: self.public.encrypt(&mechanism, &secret)?.into(),
                mechanism,
                template: readable_secret(),
            };
            match super::make_and_read(self.core, self.connection, &unwrap) {
                Ok(Some(value)) => return Ok(Some(verdict(value == secret))),
                Ok(None) => {}
                Err(error) if not_this_way(&error) => {}
                Err(error) if refuses_text(&error) => return Ok(Some(verdict(false))),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Agrees on a secret with an ephemeral key, and reads it as a session object.
    fn by_deriving(&self) -> Result<Option<Finding>> {
        let mechanism = Mechanism::plain(ck::CKM_ECDH1_DERIVE);
        if self.public.kind() != KeyKind::Ec || !has(self.connection, &mechanism) {
            return Ok(None);
        }
        let Ok(agreement) = self.public.agree() else {
            return Ok(None);
        };
        let len = agreement.secret.len() as u64;
        // Tokens take the bare point, or want it as an OCTET STRING (PKCS#11 3.0, section 2.3.5).
        for point in [agreement.public.clone(), octet_string(&agreement.public)] {
            let params = Params::Ecdh {
                kdf: ck::CKD_NULL,
                shared: Blob::default(),
                public: point.into(),
            };
            let derive = Operation::Derive {
                key: self.object.id.into(),
                mechanism: Mechanism {
                    kind: ck::CKM_ECDH1_DERIVE,
                    params,
                },
                template: readable_secret().with_number(ck::CKA_VALUE_LEN, len),
            };
            match super::make_and_read(self.core, self.connection, &derive) {
                Ok(Some(value)) => return Ok(Some(verdict(value == agreement.secret))),
                Ok(None) => {}
                Err(error) if not_this_way(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn ciphers(&self) -> Vec<Mechanism> {
        if self.public.kind() != KeyKind::Rsa {
            return Vec::new();
        }
        let oaep = Mechanism {
            kind: ck::CKM_RSA_PKCS_OAEP,
            params: Params::Oaep(Oaep::sha1()),
        };
        let mut ciphers = vec![Mechanism::plain(ck::CKM_RSA_PKCS), oaep];
        ciphers.retain(|mechanism| has(self.connection, mechanism));
        ciphers
    }

    fn use_key(&self, verb: Verb, mechanism: &Mechanism, data: Vec<u8>) -> Result<Vec<u8>> {
        let operation = Operation::Use {
            verb,
            key: self.object.id.into(),
            mechanism: mechanism.clone(),
            data: data.into(),
        };
        let outcome = self.core.on(self.connection, &operation)?;
        Ok(outcome.into_bytes()?.to_vec())
    }
}

/// DER, of less than 128 or at most 255 bytes: a point is no longer.
fn octet_string(content: &[u8]) -> Vec<u8> {
    let len = content.len() as u8;
    let head: &[u8] = if len < 0x80 {
        &[0x04, len]
    } else {
        &[0x04, 0x81, len]
    };
    [head, content].concat()
}

fn verdict(good: bool) -> Finding {
    if good {
        Finding::Proved
    } else {
        let why =
            "it is another key than its public half says; delete it there, then hsmux key clone";
        Finding::Not(why.into())
    }
}

/// True for a token's error about a text that was made for another key.
fn refuses_text(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(
            ck::CKR_ENCRYPTED_DATA_INVALID
                | ck::CKR_ENCRYPTED_DATA_LEN_RANGE
                | ck::CKR_WRAPPED_KEY_INVALID
                | ck::CKR_WRAPPED_KEY_LEN_RANGE
        )
    )
}
