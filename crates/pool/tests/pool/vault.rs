//! Fake tokens that hold real P-256 and AES-like keys, and seats over them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hsmux_pool::{Options, Pool, Seat};
use hsmux_software::PublicKey;
use hsmux_token::fake::{Builder, FakeToken};
use hsmux_token::sync::Mutex;
use hsmux_token::{
    Attributes, Class, Error, Made, Mechanism, Object, ObjectId, ObjectRef, Operation, Outcome,
    Result, SessionObject, Token, Verb, ck,
};
use p256::ecdsa::signature::hazmat::PrehashSigner;
use p256::ecdsa::{Signature, SigningKey};

/// A key of a test; the same `seed` gives the same key.
#[derive(Clone, Copy)]
pub struct Key(&'static Pair);

/// Made once and leaked: curve arithmetic is slow in a test's build.
struct Pair {
    seed: u8,
    signer: SigningKey,
    public: PublicKey,
    id: ObjectId,
}

impl Key {
    pub fn new(seed: u8) -> Self {
        let signer = SigningKey::from_slice(&[seed; 32]).unwrap();
        let point = signer.verifying_key().to_sec1_point(false);
        let attributes = Attributes::default()
            .with_number(ck::CKA_CLASS, ck::CKO_PUBLIC_KEY)
            .with_number(ck::CKA_KEY_TYPE, ck::CKK_EC)
            .with(
                ck::CKA_EC_PARAMS,
                &b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07"[..],
            )
            .with(ck::CKA_EC_POINT, point.as_bytes().to_vec());
        let public = PublicKey::from_attributes(&attributes).unwrap();
        let id = ObjectId::of_public_key(Class::PRIVATE_KEY, public.spki());
        Self(Box::leak(Box::new(Pair {
            seed,
            signer,
            public,
            id,
        })))
    }

    pub fn public(self) -> &'static PublicKey {
        &self.0.public
    }

    pub fn id(self) -> ObjectId {
        self.0.id
    }

    pub fn object(self) -> Object {
        let attributes = self
            .public()
            .to_attributes()
            .with_number(ck::CKA_CLASS, ck::CKO_PRIVATE_KEY)
            .with(ck::CKA_LABEL, format!("key {}", self.0.seed))
            .with_flag(ck::CKA_SIGN, true)
            .with_flag(ck::CKA_DECRYPT, false);
        Object {
            id: self.id(),
            attributes,
        }
    }

    pub fn sign(self, data: &[u8]) -> Vec<u8> {
        let signature: Signature = self.0.signer.sign_prehash(data).unwrap();
        signature.to_bytes().to_vec()
    }

    /// C_Sign of 32 bytes.
    pub fn signing(self) -> Operation {
        Operation::Use {
            verb: Verb::Sign,
            key: self.id().into(),
            mechanism: Mechanism::plain(ck::CKM_ECDSA),
            data: vec![7; 32].into(),
        }
    }

    pub fn check(self, outcome: Outcome) {
        let signature = outcome.into_bytes().unwrap();
        let mechanism = Mechanism::plain(ck::CKM_ECDSA);
        self.public()
            .verify(&mechanism, &[7; 32], &signature)
            .unwrap();
    }
}

/// A fake secret key of this type and value: enciphers by adding the value.
pub fn secret(value: u8) -> Object {
    Object {
        id: ObjectId::of_secret_key(ck::CKK_AES, b"secret", b"kcv"),
        attributes: Attributes::default()
            .with_number(ck::CKA_CLASS, ck::CKO_SECRET_KEY)
            .with_number(ck::CKA_KEY_TYPE, ck::CKK_AES)
            .with(ck::CKA_LABEL, "secret")
            .with(ck::CKA_VALUE_LEN, vec![value]),
    }
}

/// A token that signs with these keys, and makes session keys; what it shows of them is `claimed`.
pub fn holding(name: &str, keys: &[(Key, Key)]) -> Builder {
    let table: HashMap<ObjectId, Key> = keys
        .iter()
        .map(|(claimed, real)| (claimed.id(), *real))
        .collect();
    let objects = keys.iter().map(|(claimed, _)| claimed.object()).collect();
    FakeToken::builder(name)
        .objects(objects)
        .answer(move |operation| answer(&table, operation))
}

/// A token that honestly holds one key.
pub fn honest(name: &str, key: Key) -> Builder {
    holding(name, &[(key, key)])
}

fn answer(table: &HashMap<ObjectId, Key>, operation: &Operation) -> Result<Outcome> {
    match operation {
        Operation::Use {
            key: ObjectRef::Token(id),
            data,
            ..
        } => {
            let key = table.get(id).ok_or_else(|| {
                Error::request(hsmux_token::Kind::UnknownObject, "C_Sign: no such key")
            })?;
            Ok(Outcome::Bytes(key.sign(data).into()))
        }
        Operation::Random { len } => Ok(Outcome::Bytes(vec![1; *len as usize].into())),
        Operation::Generate { .. } => {
            let (owner, handle) = (0, 1);
            let session = Some(SessionObject { owner, handle });
            let object = secret(1);
            Ok(Outcome::Objects(vec![Made { session, object }]))
        }
        other => Err(Error::vendor(other.call(), ck::CKR_FUNCTION_NOT_SUPPORTED)),
    }
}

/// Hands out one token after the other, one for each connection.
pub struct Supply {
    make: Box<dyn Fn() -> Result<Arc<FakeToken>> + Send + Sync>,
    made: Mutex<Vec<Arc<FakeToken>>>,
    pub attempts: AtomicUsize,
}

impl Supply {
    pub fn new(make: impl Fn() -> Result<Arc<FakeToken>> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            make: Box::new(make),
            made: Mutex::new(Vec::new()),
            attempts: AtomicUsize::new(0),
        })
    }

    pub fn of(make: impl Fn() -> Builder + Send + Sync + 'static) -> Arc<Self> {
        Self::new(move || Ok(make().build()))
    }

    /// The newest connection.
    pub fn last(&self) -> Arc<FakeToken> {
        Arc::clone(self.made.lock().last().expect("not connected yet"))
    }

    pub fn connections(&self) -> usize {
        self.made.lock().len()
    }

    pub fn seat(self: &Arc<Self>, name: &str) -> Seat {
        let supply = Arc::clone(self);
        Seat {
            name: name.into(),
            member: name.split('#').next().unwrap_or(name).into(),
            weight: 1,
            timeout: Duration::from_secs(20),
            connector: Arc::new(move || -> Result<Arc<dyn Token>> {
                supply.attempts.fetch_add(1, Ordering::SeqCst);
                let token = (supply.make)()?;
                supply.made.lock().push(Arc::clone(&token));
                Ok(token)
            }),
        }
    }
}

/// A pool over such tokens, all in service.
pub fn pool(options: Options, seats: Vec<Seat>) -> Arc<Pool> {
    Pool::start(options, seats).unwrap()
}

pub fn in_seconds(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

/// Looks until it holds, for two minutes at most: a slow machine takes its time.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = in_seconds(120);
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Submits an operation; the answer comes through the channel.
pub fn submit(
    pool: &Pool,
    operation: Operation,
    deadline: Instant,
) -> std::sync::mpsc::Receiver<Result<Outcome>> {
    submit_to(pool, operation, deadline)
}

/// The same to any token.
pub fn submit_to(
    token: &dyn Token,
    operation: Operation,
    deadline: Instant,
) -> std::sync::mpsc::Receiver<Result<Outcome>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    token.submit(hsmux_token::Batch::from_buf([hsmux_token::Request {
        behalf: None,
        operation,
        deadline,
        done: hsmux_token::Done::new(move |result| {
            let _ = sender.send(result);
        }),
    }]));
    receiver
}
