//! AES-256-CBC with one key of a token, half encryption and half decryption: the work of the replaced brokers without
//! HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hsmux_token::{
    Batch, Class, Done, Error, Kind, Mechanism, ObjectId, ObjectRef, Operation, Outcome, Request,
    Result, Token, Verb, ck,
};
use tokio::sync::oneshot;

use crate::Measurement;
use crate::engine::{self, AsyncCaller, CallerFuture, LoadModel, Plan, RunControl, Until};

/// How long one operation may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// The prepared operations of the callers, each on different bytes.
pub struct Cipher {
    token: Arc<dyn Token>,
    callers: Vec<CallerOperations>,
}

/// The operations of one caller.
struct CallerOperations {
    plaintext: Bytes,
    encrypt: Operation,
    decrypt: Operation,
    next: AtomicUsize,
}

impl Cipher {
    /// Prepares operations with the token's AES key of this label.
    pub fn new(token: Arc<dyn Token>, label: &str, callers: usize, payload: usize) -> Result<Self> {
        let key = find(&*token, label)?;
        let prepare = |_| CallerOperations::new(&*token, key, payload);
        let callers = (0..callers).map(prepare).collect::<Result<_>>()?;
        Ok(Self { token, callers })
    }

    /// Measures, a thread for each caller.
    pub fn measure(&self, until: Until, control: RunControl<'_>) -> Measurement {
        let run = |caller: usize| {
            let operations = &self.callers[caller];
            let operation = operations.next();
            operations.check(operation, self.token.execute(operation, deadline()))
        };
        engine::measure(&self.plan(until), control, &run, None)
    }

    /// Measures with callers that are futures, as in a service.
    pub fn measure_waiting(&self, until: Until, control: RunControl<'_>) -> Measurement {
        let caller = |index: usize| -> Box<dyn AsyncCaller> {
            Box::new(CipherCaller {
                token: &*self.token,
                operations: &self.callers[index],
            })
        };
        engine::measure_waiting(&self.plan(until), control, &caller, engine::Ending::Finish)
    }

    fn plan(&self, until: Until) -> Plan {
        Plan {
            load: LoadModel::Closed {
                workers: self.callers.len(),
            },
            until,
            warm_up: Duration::ZERO,
            processes: Vec::new(),
        }
    }
}

fn deadline() -> Instant {
    Instant::now() + DEADLINE
}

fn find(token: &dyn Token, label: &str) -> Result<ObjectId> {
    let objects = token.objects()?;
    let named = objects.objects.iter().find(|object| {
        object.id.class == Class::SECRET_KEY
            && object.attributes.text(ck::CKA_LABEL).as_deref() == Some(label)
    });
    named.map(|object| object.id).ok_or_else(|| {
        let token = &token.info().label;
        let message = format!("token {token:?} has no secret key with the label {label:?}");
        Error::request(Kind::UnknownObject, message)
    })
}

impl CallerOperations {
    fn new(token: &dyn Token, key: ObjectId, payload: usize) -> Result<Self> {
        let mut bytes = vec![0; payload + 16];
        getrandom::fill(&mut bytes).map_err(|error| {
            let message = format!("the system gave no random bytes: {error}");
            Error::pool(Kind::Environment, message)
        })?;
        let plaintext = Bytes::copy_from_slice(&bytes[16..]);
        let iv = bytes[..16].to_vec();
        let operation = |verb, data: Bytes| Operation::Use {
            verb,
            key: ObjectRef::Token(key),
            mechanism: Mechanism::with_bytes(ck::CKM_AES_CBC_PAD, iv.clone()),
            data: data.into(),
        };
        let encrypt = operation(Verb::Encrypt, plaintext.clone());
        let ciphertext = token.execute(&encrypt, deadline())?.into_bytes()?;
        Ok(Self {
            decrypt: operation(Verb::Decrypt, ciphertext),
            encrypt,
            plaintext,
            next: AtomicUsize::new(0),
        })
    }

    /// Encrypts and decrypts in turn.
    fn next(&self) -> &Operation {
        match self.next.fetch_add(1, Relaxed) % 2 {
            0 => &self.encrypt,
            _ => &self.decrypt,
        }
    }

    /// Checks that the decrypted text is the original.
    fn check(&self, operation: &Operation, answer: Result<Outcome>) -> Result<Bytes> {
        let bytes = answer?.into_bytes()?;
        if std::ptr::eq(operation, &raw const self.decrypt) && bytes != self.plaintext {
            return Err(Error::protocol("a text that is not the one enciphered"));
        }
        Ok(Bytes::new())
    }
}

/// A caller without a thread.
struct CipherCaller<'a> {
    token: &'a dyn Token,
    operations: &'a CallerOperations,
}

impl AsyncCaller for CipherCaller<'_> {
    fn prepare(&mut self) -> CallerFuture<'_, ()> {
        Box::pin(async {})
    }

    fn call(&mut self) -> CallerFuture<'_, Result<Bytes>> {
        let operation = self.operations.next();
        let (sender, receiver) = oneshot::channel();
        self.token.submit(Batch::from_buf([Request {
            behalf: None,
            operation: operation.clone(),
            deadline: deadline(),
            done: Done::new(move |answer| drop(sender.send(answer))),
        }]));
        Box::pin(async move {
            let answer = receiver.await;
            let answer = answer.unwrap_or_else(|_| Err(Error::lost("the token has gone")));
            self.operations.check(operation, answer)
        })
    }
}
