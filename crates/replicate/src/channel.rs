//! Transfer of keys between tokens, wrapped under a key that only the target can unwrap.
//!
//! The source makes an AES-256 session key and wraps it once under the target's transport public key. It uses
//! RSA-OAEP with SHA-256, or with SHA-1 if one of the two has no other: OAEP does not need collision resistance.
//! Every key of the run is wrapped under the session key. If both tokens hold a wrapping key already, that is used.

use super::replicator::Replicator;
use super::token_access::{TemporaryObject, TokenAccess, is_absent};
use super::transport::PinnedKey;
use hsmux_token::ck::*;
use hsmux_token::{
    Attributes, Blob, Borrow, Error, Kind, Mechanism, Oaep, ObjectId, ObjectRef, Operation, Params,
    Result, Token,
};
use minicbor::{Decode, Encode};

/// Mechanisms that wrap any key under an AES key, the best first. CKM_AES_KEY_WRAP takes whole blocks of 8 bytes
/// only; CBC has no integrity check, but the proof of the copy finds a damaged key.
const UNDER_AES: &[u64] = &[
    CKM_AES_KEY_WRAP_KWP,
    CKM_AES_KEY_WRAP_PAD,
    CKM_AES_KEY_WRAP,
    CKM_AES_CBC_PAD,
];

/// RSA-OAEP for transport keys, with one of [`OAEP_HASHES`].
pub(super) fn oaep(hash: u64) -> Mechanism {
    let params = match hash {
        CKM_SHA256 => Oaep::sha256(),
        _ => Oaep::sha1(),
    };
    Mechanism {
        kind: CKM_RSA_PKCS_OAEP,
        params: Params::Oaep(params),
    }
}

/// Hashes for RSA-OAEP (`CKM_*`), the best first: every token has the last.
pub(super) const OAEP_HASHES: [u64; 2] = [CKM_SHA256, CKM_SHA_1];

/// The mechanisms by which a token unwraps any key under an AES key.
pub(super) fn unwraps(token: &dyn Token) -> Vec<u64> {
    UNDER_AES
        .iter()
        .copied()
        .filter(|kind| super::token_access::offers(token, *kind, CKF_UNWRAP))
        .collect()
}

/// A wrapped key, for one target.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(array, context_bound = "Borrow")]
pub(super) struct Envelope {
    /// The target's own key: its transport key, or the wrapping key that both hold.
    #[n(0)]
    opener: ObjectId,
    /// The AES key of the run, wrapped under the transport key; nothing when both hold `opener`.
    #[n(1)]
    sealed: Option<Blob>,
    /// How the key itself is wrapped.
    #[n(2)]
    mechanism: Mechanism,
    /// The key itself.
    #[n(3)]
    wrapped: Blob,
    /// The hash of the AES key's RSA-OAEP; absent: SHA-1.
    #[n(4)]
    oaep_hash: Option<u64>,
}

impl Envelope {
    /// The target's own key, by which it is opened.
    pub fn opener(&self) -> ObjectId {
        self.opener
    }
}

/// The source's end of the way to one target.
pub(super) struct Channel<'a> {
    source: TokenAccess<'a>,
    wrapping: ObjectRef,
    /// Kept so that the session key lives as long as the channel.
    _session_key: Option<TemporaryObject<'a>>,
    opener: ObjectId,
    sealed: Option<Blob>,
    oaep_hash: Option<u64>,
    mechanisms: Vec<u64>,
}

impl<'a> Channel<'a> {
    /// An error if no key can leave the source wrapped.
    pub fn can_leave(source: TokenAccess<'_>) -> Result<()> {
        if source.offers(CKM_RSA_PKCS_OAEP, CKF_WRAP) {
            return Ok(());
        }
        Err(cannot(
            source.name,
            "has no wrapping by CKM_RSA_PKCS_OAEP: keys that it holds are copied under a key that \
             both tokens hold (hsmux key clone --wrapping-key)",
        ))
    }

    /// To a target with a pinned transport key, present or not.
    pub fn to(source: TokenAccess<'a>, target: &PinnedKey) -> Result<Self> {
        let mechanisms = common(source, &target.unwraps, &target.name)?;
        Self::can_leave(source)?;
        let mut template = target
            .public_key()?
            .to_attributes()
            .with_flag(CKA_TOKEN, false)
            .with_flag(CKA_WRAP, true);
        // Said by the token, not to it.
        template.remove(CKA_MODULUS_BITS);
        let public = source.make_session(&Operation::Create {
            template,
            near: None,
        })?;
        let session_key = source.make_session(&Operation::Generate {
            mechanism: Mechanism::plain(CKM_AES_KEY_GEN),
            template: session_key_template().with_number(CKA_VALUE_LEN, 32),
        })?;
        let seal = |hash| {
            source.run(&Operation::Wrap {
                wrapping: public.reference(),
                mechanism: oaep(hash),
                key: session_key.reference(),
            })
        };
        let best = target.oaep_hash();
        let (hash, sealed) = match seal(best) {
            Err(error) if best != CKM_SHA_1 && fits_not(&error) => (CKM_SHA_1, seal(CKM_SHA_1)?),
            sealed => (best, sealed?),
        };
        Ok(Self {
            source,
            wrapping: session_key.reference(),
            _session_key: Some(session_key),
            opener: target.private_key()?,
            sealed: Some(Blob(sealed.into_bytes()?)),
            oaep_hash: Some(hash),
            mechanisms,
        })
    }

    /// To a target that holds the same wrapping key, an AES key.
    pub fn under(source: TokenAccess<'a>, target: TokenAccess<'_>, key: ObjectId) -> Result<Self> {
        for (access, usage, verb) in [(source, CKA_WRAP, "wrap"), (target, CKA_UNWRAP, "unwrap")] {
            let Some(held) = access.find(key)? else {
                let why = format!("does not hold the wrapping key {key}");
                return Err(cannot(access.name, &why));
            };
            if held.attributes.number(CKA_KEY_TYPE) != Some(CKK_AES) {
                let why = format!("cannot {verb} under {key}, which is no AES key");
                return Err(cannot(access.name, &why));
            }
            if held.attributes.flag(usage) == Some(false) {
                let flag = verb.to_uppercase();
                let why = format!("may not {verb} under the key {key} (CKA_{flag} is FALSE)");
                return Err(cannot(access.name, &why));
            }
        }
        Ok(Self {
            source,
            wrapping: key.into(),
            _session_key: None,
            opener: key,
            sealed: None,
            oaep_hash: None,
            mechanisms: common(source, &unwraps(target.token), target.name)?,
        })
    }

    /// Wraps a key of the source for the target.
    pub fn seal(&self, key: ObjectRef) -> Result<Envelope> {
        let mut refused = None;
        for kind in &self.mechanisms {
            let mechanism = mechanism(*kind)?;
            let wrapped = self.source.run(&Operation::Wrap {
                wrapping: self.wrapping,
                mechanism: mechanism.clone(),
                key,
            });
            match wrapped {
                Ok(outcome) => {
                    return Ok(Envelope {
                        opener: self.opener,
                        sealed: self.sealed.clone(),
                        mechanism,
                        wrapped: Blob(outcome.into_bytes()?),
                        oaep_hash: self.oaep_hash,
                    });
                }
                Err(error) if fits_not(&error) => refused = Some(error),
                Err(error) => return Err(explain(error, self.source.name)),
            }
        }
        Err(refused.map_or_else(
            || cannot(self.source.name, "has no way to wrap a key"),
            |error| explain(error, self.source.name),
        ))
    }
}

/// The target's end: opens envelopes, and keeps the AES key of the run while they follow one another.
pub(super) struct Opener<'a> {
    access: TokenAccess<'a>,
    replicator: Option<&'a dyn Replicator>,
    opened: Option<(Blob, TemporaryObject<'a>)>,
}

impl<'a> Opener<'a> {
    /// For one token.
    pub fn new(access: TokenAccess<'a>) -> Self {
        Self {
            access,
            replicator: None,
            opened: None,
        }
    }

    /// The same for keys that also come by a replicator.
    pub fn with_replicator(self, replicator: Option<&'a dyn Replicator>) -> Self {
        Self { replicator, ..self }
    }

    /// These means.
    pub fn replicator(&self) -> Result<&'a dyn Replicator> {
        self.replicator.ok_or_else(|| {
            cannot(
                self.access.name,
                "is owed a key that came by its own means, which this program does not have: \
                 leave it to the daemon",
            )
        })
    }

    /// The token.
    pub fn access(&self) -> TokenAccess<'a> {
        self.access
    }

    /// Unwraps the key of an envelope under a template.
    pub fn open(
        &mut self,
        envelope: &Envelope,
        template: &Attributes,
    ) -> Result<hsmux_token::Made> {
        let unwrapping = match &envelope.sealed {
            Some(sealed) => {
                let hash = envelope.oaep_hash.unwrap_or(CKM_SHA_1);
                self.session_key(envelope.opener, sealed, hash)?
            }
            None => envelope.opener.into(),
        };
        self.access.make(&Operation::Unwrap {
            unwrapping,
            mechanism: envelope.mechanism.clone(),
            wrapped: envelope.wrapped.clone(),
            template: template.clone(),
        })
    }

    fn session_key(&mut self, transport: ObjectId, sealed: &Blob, hash: u64) -> Result<ObjectRef> {
        if let Some((of, key)) = &self.opened
            && of == sealed
        {
            return Ok(key.reference());
        }
        let unwrap = Operation::Unwrap {
            unwrapping: transport.into(),
            mechanism: oaep(hash),
            wrapped: sealed.clone(),
            template: session_key_template()
                .with_number(CKA_CLASS, CKO_SECRET_KEY)
                .with_number(CKA_KEY_TYPE, CKK_AES),
        };
        let key = self.access.make_session(&unwrap).map_err(|error| {
            if is_absent(&error) {
                error.at(
                    "its transport key is gone (was the token initialised again? then stop the daemon, remove \
                     replicate/transport.json in the state folder, and start it: the tokens are enrolled anew)",
                )
            } else {
                error
            }
        })?;
        let reference = key.reference();
        self.opened = Some((sealed.clone(), key));
        Ok(reference)
    }
}

fn session_key_template() -> Attributes {
    Attributes::default()
        .with_flag(CKA_TOKEN, false)
        .with_flag(CKA_SENSITIVE, true)
        .with_flag(CKA_EXTRACTABLE, true)
        .with_flag(CKA_WRAP, true)
        .with_flag(CKA_UNWRAP, true)
}

/// The mechanism with its parameter.
fn mechanism(kind: u64) -> Result<Mechanism> {
    if kind != CKM_AES_CBC_PAD {
        return Ok(Mechanism::plain(kind));
    }
    Ok(Mechanism::with_bytes(kind, super::random::<16>()?.to_vec()))
}

fn common(source: TokenAccess, target: &[u64], target_name: &str) -> Result<Vec<u64>> {
    let common: Vec<u64> = UNDER_AES
        .iter()
        .copied()
        .filter(|kind| source.offers(*kind, CKF_WRAP) && target.contains(kind))
        .collect();
    if common.is_empty() {
        return Err(cannot(
            source.name,
            &format!(
                "and {target_name} have no way in common to wrap a key under AES \
                 (CKM_AES_KEY_WRAP_KWP, CKM_AES_KEY_WRAP_PAD, CKM_AES_KEY_WRAP, CKM_AES_CBC_PAD)"
            ),
        ));
    }
    Ok(common)
}

fn cannot(member: &str, why: &str) -> Error {
    Error::request(Kind::Unsupported, format!("{member} {why}"))
}

/// True if another wrapping mechanism may work.
fn fits_not(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(
            CKR_MECHANISM_INVALID
                | CKR_MECHANISM_PARAM_INVALID
                | CKR_ARGUMENTS_BAD
                | CKR_KEY_SIZE_RANGE
                | CKR_KEY_NOT_WRAPPABLE
                | CKR_DATA_LEN_RANGE
        )
    )
}

/// Says what to do about a key that cannot leave its token.
fn explain(error: Error, member: &str) -> Error {
    match error.code() {
        Some(CKR_KEY_UNEXTRACTABLE) => stays(member),
        Some(CKR_KEY_NOT_WRAPPABLE | CKR_KEY_SIZE_RANGE) => {
            error.at("the token does not let this kind of key out")
        }
        _ => error,
    }
}

/// A key that cannot leave its token, and what to do.
pub(super) fn stays(member: &str) -> Error {
    Error::request(
        Kind::Vendor(CKR_KEY_UNEXTRACTABLE),
        format!(
            "the key cannot leave {member} (CKA_EXTRACTABLE is FALSE): generate a new one through \
             the pool, which puts it on every member, or clone it with the card's own means (a \
             SmartCard-HSM's DKEK)"
        ),
    )
}
