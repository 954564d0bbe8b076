//! A token: its objects, by the rules of the crate `module`, and what it does with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hsmux_software::{digest, identify, prehashed_input};
use hsmux_token::ck::*;
use hsmux_token::{
    Attributes, Error, Hash, Kind, Made, Mechanism, MechanismInfo, Object, ObjectId, ObjectRef,
    Operation, Outcome, Result, SessionObject, TokenFlags, TokenInfo, Verb,
};

use super::cryptography::{Secret, exponent, oaep_message};
use super::plan::TokenPlan;
use crate::TRANSPORT_LABEL;
use hsmux_token::fake::Random;

/// Bits of an RSA key as long as the token makes it.
const LARGEST: u64 = 1024;

pub(super) struct TokenModel {
    pub member: String,
    pub serial: String,
    pub info: Arc<TokenInfo>,
    plan: TokenPlan,
    /// Token objects, and session objects of the present connection.
    objects: BTreeMap<u64, StoredObject>,
    /// As in crate `module`: an object answers by its old name until it is read.
    handles: BTreeMap<ObjectId, u64>,
    /// Objects that were read since they have changed.
    read: BTreeSet<u64>,
    next: u64,
    pub connection: u64,
    pub is_ended: bool,
    /// It has caught up on this connection.
    pub is_in: bool,
    /// The names in the pool's catalogue.
    pub shown: BTreeSet<ObjectId>,
}

#[derive(Clone)]
struct StoredObject {
    object: Object,
    secret: Secret,
}

impl StoredObject {
    fn is_of_token(&self) -> bool {
        self.object.attributes.flag(CKA_TOKEN) == Some(true)
    }
}

impl TokenModel {
    pub fn new(number: usize, plan: &TokenPlan) -> Self {
        let mut token = Self {
            member: format!("hsm{number}"),
            serial: String::new(),
            info: Arc::default(),
            plan: plan.clone(),
            objects: BTreeMap::new(),
            handles: BTreeMap::new(),
            read: BTreeSet::new(),
            shown: BTreeSet::new(),
            next: 1,
            connection: 0,
            is_ended: true,
            is_in: false,
        };
        token.replace(&format!("S{number}"));
        token
    }

    /// Another token, which is empty, takes its place.
    pub fn replace(&mut self, serial: &str) {
        self.initialise();
        serial.clone_into(&mut self.serial);
        self.info = Arc::new(TokenInfo {
            label: self.member.clone(),
            serial: serial.to_owned(),
            flags: TokenFlags::RNG | TokenFlags::TOKEN_INITIALIZED,
            lanes: 1,
            mechanisms: mechanisms(&self.plan),
            ..TokenInfo::default()
        });
    }

    /// All its objects are gone.
    pub fn initialise(&mut self) {
        self.objects.clear();
        self.disconnect();
    }

    /// Session objects go with the connection.
    pub fn disconnect(&mut self) {
        self.is_ended = true;
        self.is_in = false;
        self.objects.retain(|_, object| object.is_of_token());
        self.handles.clear();
        self.read.clear();
        self.shown.clear();
    }

    pub fn connect(&mut self) {
        self.disconnect();
        self.connection += 1;
        self.is_ended = false;
    }

    pub fn serves(&self) -> bool {
        self.is_in && !self.is_ended
    }

    /// The objects that applications would see, with numbers that tell their values apart.
    pub fn holdings(&self) -> impl Iterator<Item = (&Object, u64)> {
        let shown = self.objects.values().filter(|stored| {
            let label = stored.object.attributes.get(CKA_LABEL).unwrap_or_default();
            stored.is_of_token() && !label.starts_with(TRANSPORT_LABEL.as_bytes())
        });
        shown.map(|stored| (&stored.object, stored.secret.number()))
    }

    pub fn holds(&self, id: ObjectId) -> Option<&Object> {
        let mut all = self.holdings().map(|(object, _)| object);
        all.find(|object| object.id == id)
    }

    /// Reads all token objects.
    pub fn read_all(&mut self) -> Vec<Object> {
        self.handles.clear();
        self.read.clear();
        let mut read = Vec::new();
        for (handle, stored) in &self.objects {
            if stored.is_of_token() {
                self.handles.entry(stored.object.id).or_insert(*handle);
                self.read.insert(*handle);
                read.push(stored.object.clone());
            }
        }
        read
    }

    /// Runs one operation.
    pub fn run(&mut self, operation: &Operation, random: &mut Random) -> Result<Outcome> {
        let made = match operation {
            Operation::Generate {
                mechanism,
                template,
            } => {
                let key_type = match mechanism.kind {
                    CKM_AES_KEY_GEN => CKK_AES,
                    _ => CKK_GENERIC_SECRET,
                };
                let secret = Secret::Number(random.number());
                let attributes = of_secret_key(template, key_type)
                    .with_flag(CKA_LOCAL, true)
                    .with_number(CKA_KEY_GEN_MECHANISM, mechanism.kind)
                    .with(CKA_CHECK_VALUE, secret.check_value());
                vec![self.add(attributes, secret)]
            }
            Operation::GeneratePair {
                public, private, ..
            } => {
                let bits = public.number(CKA_MODULUS_BITS).unwrap_or(LARGEST);
                let secret = Secret::pair(random, bits.min(LARGEST) as usize);
                let local = |half: &Attributes, class| {
                    of_half(half, class, &secret).with_flag(CKA_LOCAL, true)
                };
                let public = local(public, CKO_PUBLIC_KEY).with_number(CKA_MODULUS_BITS, bits);
                let private = local(private, CKO_PRIVATE_KEY);
                vec![self.add(public, secret.clone()), self.add(private, secret)]
            }
            Operation::Create { template, .. } => {
                let modulus = template.get(CKA_MODULUS).map(<[u8]>::to_vec);
                let secret = modulus.map_or(Secret::None, |bytes| Secret::Modulus(bytes.into()));
                vec![self.add(template.clone(), secret)]
            }
            Operation::Unwrap {
                unwrapping,
                wrapped,
                template,
                ..
            } => vec![self.unwrap(unwrapping, wrapped, template)?],
            Operation::Copy { object, template } => {
                let model = self.find(object)?;
                let model = self.objects[&model].clone();
                let attributes = crate::template::over(&model.object.attributes, template);
                vec![self.add(attributes, model.secret)]
            }
            Operation::Read { object } => {
                let handle = self.find(object)?;
                if let ObjectRef::Token(id) = object
                    && self.objects[&handle].object.id != *id
                {
                    self.handles.remove(id);
                }
                vec![handle]
            }
            Operation::Destroy { object } => {
                let handle = self.find(object)?;
                if let ObjectRef::Token(id) = object
                    && self.objects[&handle].object.id != *id
                {
                    self.made(&[handle]);
                    self.handles.remove(id);
                    return Err(not_there(*id));
                }
                self.objects.remove(&handle);
                if let ObjectRef::Token(id) = object {
                    self.handles.remove(id);
                }
                return Ok(Outcome::Done);
            }
            Operation::SetAttributes { object, template } => {
                let handle = self.find(object)?;
                self.set(handle, template)?;
                self.read.remove(&handle);
                return Ok(Outcome::Done);
            }
            Operation::Wrap { wrapping, key, .. } => {
                let (wrapping, key) = (self.find(wrapping)?, self.find(key)?);
                let key = &self.objects[&key].secret;
                let wrapped = self.objects[&wrapping].secret.wrap(key);
                return Ok(Outcome::Bytes(wrapped.into()));
            }
            Operation::Use {
                verb,
                key,
                mechanism,
                data,
            } => {
                let key = self.find(key)?;
                let secret = &self.objects[&key].secret;
                return keyed(secret, *verb, mechanism, data);
            }
            other => return Err(Error::vendor(other.call(), CKR_FUNCTION_NOT_SUPPORTED)),
        };
        Ok(self.made(&made))
    }

    fn add(&mut self, attributes: Attributes, secret: Secret) -> u64 {
        let handle = self.next;
        self.next += 1;
        let object = self.named(attributes);
        self.objects.insert(handle, StoredObject { object, secret });
        handle
    }

    fn named(&self, attributes: Attributes) -> Object {
        let mut named = identify(&self.serial, vec![attributes]);
        named.remove(0)
    }

    /// The answer with these objects, whose names are known from now on.
    fn made(&mut self, handles: &[u64]) -> Outcome {
        let mut made = Vec::new();
        for handle in handles {
            let stored = &self.objects[handle];
            let is_of_token = stored.is_of_token();
            if is_of_token {
                let id = stored.object.id;
                self.handles.insert(id, *handle);
                self.read.insert(*handle);
            }
            let session = SessionObject {
                owner: 0,
                handle: *handle,
            };
            made.push(Made {
                session: (!is_of_token).then_some(session),
                object: stored.object.clone(),
            });
        }
        Outcome::Objects(made)
    }

    fn find(&mut self, object: &ObjectRef) -> Result<u64> {
        let id = match object {
            ObjectRef::Session(session) => {
                let is_there = self.objects.contains_key(&session.handle);
                let gone = || Error::vendor("C_GetAttributeValue", CKR_OBJECT_HANDLE_INVALID);
                return is_there.then_some(session.handle).ok_or_else(gone);
            }
            ObjectRef::Token(id) => id,
        };
        let is_known = |handle: &&u64| self.objects.contains_key(handle);
        if let Some(handle) = self.handles.get(id).filter(is_known) {
            return Ok(*handle);
        }
        let of_token = self
            .objects
            .iter()
            .filter(|(_, stored)| stored.is_of_token());
        let new = of_token.map(|(handle, _)| *handle);
        let new: Vec<u64> = new.filter(|handle| !self.read.contains(handle)).collect();
        self.made(&new);
        let is_known = |handle: &&u64| self.objects.contains_key(handle);
        if let Some(handle) = self.handles.get(id).filter(is_known) {
            return Ok(*handle);
        }
        self.read_all();
        self.handles.get(id).copied().ok_or_else(|| not_there(*id))
    }

    fn set(&mut self, handle: u64, template: &Attributes) -> Result<()> {
        let stored = &self.objects[&handle];
        if let Some(value) = template.get(CKA_CHECK_VALUE) {
            let code = if self.plan.gives_check_values {
                CKR_ATTRIBUTE_READ_ONLY
            } else {
                CKR_ATTRIBUTE_VALUE_INVALID
            };
            if self.plan.gives_check_values || value != stored.secret.check_value() {
                return Err(Error::vendor("C_SetAttributeValue", code));
            }
        }
        let attributes = crate::template::over(&stored.object.attributes, template);
        let object = self.named(attributes);
        self.objects.get_mut(&handle).expect("it is there").object = object;
        Ok(())
    }

    fn unwrap(&mut self, by: &ObjectRef, wrapped: &[u8], template: &Attributes) -> Result<u64> {
        let refused = |code| Error::vendor("C_UnwrapKey", code);
        let info = template.get(CKA_PUBLIC_KEY_INFO);
        if info.is_some() && !self.plan.knows_public_key_info {
            return Err(refused(CKR_ATTRIBUTE_TYPE_INVALID));
        }
        let by = self.find(by)?;
        let by = &self.objects[&by].secret;
        if let Some(secret) = by.unwrap(wrapped) {
            let attributes = match &secret {
                Secret::Modulus(_) => of_half(template, CKO_PRIVATE_KEY, &secret),
                _ => self.of_unwrapped(template, &secret),
            };
            return Ok(self.add(attributes, secret));
        }
        // The challenge of a proof was encrypted by the real code.
        let challenge = oaep_message(wrapped).ok_or_else(|| refused(CKR_WRAPPED_KEY_INVALID))?;
        let attributes = template.clone().with(CKA_VALUE, challenge);
        Ok(self.add(attributes, Secret::None))
    }

    /// A secret key's name rests on its check value, which not every token gives at once.
    fn of_unwrapped(&self, template: &Attributes, secret: &Secret) -> Attributes {
        let key_type = template.number(CKA_KEY_TYPE).unwrap_or(CKK_GENERIC_SECRET);
        let attributes = of_secret_key(template, key_type).with_flag(CKA_LOCAL, false);
        let is_computed = key_type == CKK_AES && template.flag(CKA_ENCRYPT) == Some(true);
        if self.plan.gives_check_values || is_computed {
            return attributes.with(CKA_CHECK_VALUE, secret.check_value());
        }
        attributes
    }
}

fn not_there(id: ObjectId) -> Error {
    let message = format!("no {} {id} on the token", id.class.name());
    Error::token(Kind::UnknownObject, message)
}

fn of_secret_key(template: &Attributes, key_type: u64) -> Attributes {
    let template = template.clone().with_number(CKA_CLASS, CKO_SECRET_KEY);
    template.with_number(CKA_KEY_TYPE, key_type)
}

fn of_half(template: &Attributes, class: u64, secret: &Secret) -> Attributes {
    let Secret::Modulus(modulus) = secret else {
        return template.clone();
    };
    let template = template.clone().with_number(CKA_CLASS, class);
    let template = template.with_number(CKA_KEY_TYPE, CKK_RSA);
    template
        .with(CKA_MODULUS, modulus.to_vec())
        .with(CKA_PUBLIC_EXPONENT, exponent())
}

/// An answer that the real code can verify.
fn keyed(secret: &Secret, verb: Verb, mechanism: &Mechanism, data: &[u8]) -> Result<Outcome> {
    let answer = match (verb, mechanism.kind) {
        (Verb::Encrypt, CKM_AES_ECB) => Some([secret.check_value(), vec![0; 13]].concat()),
        (Verb::Sign, CKM_RSA_PKCS) => secret.sign(data),
        (Verb::Sign, CKM_SHA256_RSA_PKCS) => {
            let hashed = digest(Hash::Sha256, data);
            let raw = Mechanism::plain(CKM_RSA_PKCS);
            secret.sign(&prehashed_input(Hash::Sha256, &raw, &hashed))
        }
        _ => None,
    };
    let refused = || Error::vendor(verb.begins(), CKR_MECHANISM_INVALID);
    let answer = answer.ok_or_else(refused)?;
    Ok(Outcome::Bytes(answer.into()))
}

fn mechanisms(plan: &TokenPlan) -> Vec<MechanismInfo> {
    let wraps = CKF_WRAP | CKF_UNWRAP;
    let mut mechanisms = vec![
        (CKM_RSA_PKCS_KEY_PAIR_GEN, 0),
        (CKM_RSA_PKCS_OAEP, wraps),
        (CKM_RSA_PKCS, CKF_SIGN),
        (CKM_AES_KEY_GEN, 0),
        (CKM_AES_ECB, CKF_ENCRYPT),
        (CKM_AES_KEY_WRAP_PAD, wraps),
        (CKM_GENERIC_SECRET_KEY_GEN, 0),
    ];
    if plan.hashes {
        mechanisms.push((CKM_SHA256_RSA_PKCS, CKF_SIGN));
    }
    mechanisms.sort_unstable();
    let info = |(kind, flags)| MechanismInfo {
        kind,
        min_key: 0,
        max_key: LARGEST,
        flags,
    };
    mechanisms.into_iter().map(info).collect()
}
