//! A card as a [`Token`]: its key pairs sign without a PKCS#11 module.
//!
//! For measurements and tests over a card that no other program uses. The login is kept; if another program ends it,
//! signing fails. A pool reaches its cards through a vendor's module.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use hsmux_software::{PublicKey, digest, identify, prehash, prehashed_input};
use hsmux_token::{
    Attributes, Batch, Class, Error, KeyKind, Kind, Mechanism, ObjectId, ObjectRef, Operation,
    Outcome, Result, Scope, Secret, Snapshot, Token, TokenInfo, Verb, ck,
};
use parking_lot::Mutex;

use crate::{
    Card, CardChannel, CardError, FileId, FileKind, KeyReference, PinReference, PinStatus,
    SignAlgorithm, cvc, ecdsa_fixed, provision,
};

/// A card that is logged in. One operation at a time, on the caller's thread.
pub struct CardToken<C> {
    card: Mutex<Card<C>>,
    info: Arc<TokenInfo>,
    objects: Arc<Snapshot>,
    keys: HashMap<ObjectId, CardKeyPair>,
}

/// A key pair of the card.
struct CardKeyPair {
    reference: KeyReference,
    kind: KeyKind,
    /// Bytes of a coordinate, of a key on a curve.
    field_len: usize,
}

impl<C: CardChannel> CardToken<C> {
    /// Logs in, with one try of the PIN, and none where a wrong one would block it; then reads the key pairs.
    pub fn open(mut card: Card<C>, pin: &Secret) -> Result<Self> {
        let serial = provision::report::serial(&mut card)
            .map_err(|error| Error::token(Kind::Environment, error.to_string()))?;
        card.select()?;
        match card.pin_status(PinReference::User)? {
            PinStatus::LoggedIn | PinStatus::TriesLeft(2..) => card.verify(pin)?,
            status => {
                let message = format!("card {serial}: the PIN is not tried: {status:?}");
                return Err(Error::token(Kind::PinHeld, message));
            }
        }
        let mut found = Vec::new();
        let mut attributes = Vec::new();
        for reference in pairs(&mut card)? {
            let Some(public) = public_key(&mut card, reference)? else {
                continue;
            };
            attributes.extend(both_halves(reference, &public));
            found.push(CardKeyPair {
                reference,
                kind: public.kind(),
                field_len: public.bits().div_ceil(8),
            });
        }
        let objects = identify(&serial, attributes);
        let private = objects.iter().map(|object| object.id);
        let private = private.filter(|id| id.class == Class::PRIVATE_KEY);
        let keys = private.zip(found).collect();
        Ok(Self {
            card: Mutex::new(card),
            info: Arc::new(TokenInfo {
                label: serial.clone(),
                serial,
                model: "SmartCard-HSM".into(),
                lanes: 1,
                ..TokenInfo::default()
            }),
            objects: Arc::new(Snapshot {
                epoch: 1,
                objects,
                is_partial: false,
            }),
            keys,
        })
    }

    fn sign(&self, pair: &CardKeyPair, mechanism: &Mechanism, data: &[u8]) -> Result<Vec<u8>> {
        let hashed = prehash(mechanism);
        let (raw, input) = match &hashed {
            Some((hash, raw)) => {
                let digest = digest(*hash, data);
                (raw, prehashed_input(*hash, raw, &digest).into_owned())
            }
            None => (mechanism, data.to_vec()),
        };
        let sign = |algorithm| {
            let mut card = self.card.lock();
            Ok(card.sign(pair.reference, algorithm, &input)?)
        };
        match (raw.kind, pair.kind) {
            (ck::CKM_RSA_PKCS, KeyKind::Rsa) => sign(SignAlgorithm::RsaPkcs1),
            (ck::CKM_ECDSA, KeyKind::Ec) => {
                let signature = sign(SignAlgorithm::Ecdsa)?;
                ecdsa_fixed(&signature, pair.field_len)
                    .map_err(|error| Error::protocol(error.to_string()))
            }
            _ => Err(Error::request(
                Kind::NoMechanism,
                format!(
                    "{} is not offered for this key of the card",
                    mechanism.name()
                ),
            )),
        }
    }
}

impl<C: CardChannel> Token for CardToken<C> {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::clone(&self.info)
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        Ok(Arc::clone(&self.objects))
    }

    fn submit(&self, batch: Batch) {
        for request in batch {
            let result = self.execute(&request.operation, request.deadline);
            request.done.complete(result);
        }
    }

    fn execute(&self, operation: &Operation, _deadline: Instant) -> Result<Outcome> {
        let Operation::Use {
            verb: Verb::Sign,
            key: ObjectRef::Token(id),
            mechanism,
            data,
        } = operation
        else {
            let message = format!("{}: a card by itself only signs", operation.call());
            return Err(Error::request(Kind::Unsupported, message));
        };
        let pair = self.keys.get(id).ok_or_else(|| {
            Error::request(Kind::UnknownObject, format!("the card has no key {id}"))
        })?;
        let signature = self.sign(pair, mechanism, data)?;
        Ok(Outcome::Bytes(signature.into()))
    }
}

/// The keys of the card but its own.
fn pairs<C: CardChannel>(card: &mut Card<C>) -> Result<Vec<KeyReference>, CardError> {
    let is_key = |file: &FileId| file.kind() == Some(FileKind::Key) && file.number() != 0;
    let files = card.enumerate()?.into_iter().filter(is_key);
    Ok(files.map(|file| KeyReference(file.number())).collect())
}

/// By the key's certificate or request; a secret key has none.
fn public_key<C: CardChannel>(card: &mut Card<C>, key: KeyReference) -> Result<Option<PublicKey>> {
    let file = card.read_file_if_any(key.file(FileKind::Certificate))?;
    let public = file.map(|file| cvc::public_key_of(&file)).transpose();
    public.map_err(|error| {
        let message = format!("{}: the certificate of {key}: {error}", card.name());
        Error::token(Kind::Environment, message)
    })
}

fn both_halves(reference: KeyReference, public: &PublicKey) -> [Attributes; 2] {
    let named = |attributes: Attributes| {
        attributes
            .with(ck::CKA_ID, vec![reference.0])
            .with(ck::CKA_LABEL, reference.to_string().into_bytes())
    };
    let half = public.to_attributes();
    let key_type = half.number(ck::CKA_KEY_TYPE).unwrap_or_default();
    let private = Attributes::default()
        .with_number(ck::CKA_CLASS, Class::PRIVATE_KEY.0)
        .with_number(ck::CKA_KEY_TYPE, key_type)
        .with(ck::CKA_PUBLIC_KEY_INFO, public.spki().to_vec())
        .with_flag(ck::CKA_SIGN, true);
    [named(half), named(private)]
}

/// The error that a vendor's module would have given to a pool, in the card's words.
impl From<CardError> for Error {
    fn from(error: CardError) -> Self {
        let (scope, kind) = match error {
            CardError::Channel(_) => (Scope::Token, Kind::Lost),
            CardError::Refused { .. } => (Scope::Token, Kind::Vendor(ck::CKR_DEVICE_ERROR)),
            CardError::BadAnswer { .. } => (Scope::Token, Kind::Protocol),
            CardError::Invalid { .. } => (Scope::Request, Kind::Invalid),
        };
        Self::new(scope, kind, error.to_string())
    }
}
