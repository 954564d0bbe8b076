//! Making a fake token.

use std::sync::Arc;
use std::time::Duration;

use super::{Answer, FakeState, FakeToken, Inner};
use crate::sync::{Condvar, Mutex};
use crate::{
    Error, MechanismInfo, Object, Operation, Outcome, Result, Snapshot, TokenFlags, TokenInfo, ck,
};

/// Makes a [`FakeToken`].
pub struct Builder {
    info: TokenInfo,
    latency: Duration,
    objects: Vec<Object>,
    answer: Box<Answer>,
    takes_connections: bool,
}

/// Mechanisms that a fake token says it has.
const MECHANISMS: [u64; 12] = [
    ck::CKM_RSA_PKCS,
    ck::CKM_RSA_PKCS_OAEP,
    ck::CKM_SHA256_RSA_PKCS,
    ck::CKM_GENERIC_SECRET_KEY_GEN,
    ck::CKM_SHA256_HMAC,
    ck::CKM_EC_KEY_PAIR_GEN,
    ck::CKM_ECDSA,
    ck::CKM_ECDH1_DERIVE,
    ck::CKM_AES_KEY_GEN,
    ck::CKM_AES_ECB,
    ck::CKM_AES_CBC,
    ck::CKM_AES_KEY_WRAP_PAD,
];

impl Builder {
    pub(super) fn new(label: &str) -> Self {
        let mut mechanisms = MECHANISMS;
        mechanisms.sort_unstable();
        Self {
            info: TokenInfo {
                label: label.into(),
                manufacturer: "hsmux".into(),
                model: "fake".into(),
                serial: label.into(),
                flags: TokenFlags::RNG | TokenFlags::TOKEN_INITIALIZED,
                lanes: 1,
                mechanisms: mechanisms
                    .map(|kind| MechanismInfo {
                        kind,
                        min_key: 0,
                        max_key: u64::from(u32::MAX),
                        flags: 0,
                    })
                    .to_vec(),
                ..TokenInfo::default()
            },
            latency: Duration::ZERO,
            objects: Vec::new(),
            answer: Box::new(plain_answer),
            takes_connections: false,
        }
    }

    /// How many operations it runs at once.
    #[must_use]
    pub fn lanes(mut self, lanes: u32) -> Self {
        self.info.lanes = lanes;
        self
    }

    /// How long each operation takes.
    #[must_use]
    pub fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// What it holds.
    #[must_use]
    pub fn objects(mut self, objects: Vec<Object>) -> Self {
        self.objects = objects;
        self
    }

    /// What it answers, in place of zeros.
    #[must_use]
    pub fn answer(
        mut self,
        answer: impl Fn(&Operation) -> Result<Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.answer = Box::new(answer);
        self
    }

    /// It takes programs' connections over, and serves none of them.
    #[must_use]
    pub fn takes_connections(mut self) -> Self {
        self.takes_connections = true;
        self
    }

    /// Changes what it says of itself.
    #[must_use]
    pub fn info(mut self, change: impl FnOnce(&mut TokenInfo)) -> Self {
        change(&mut self.info);
        self
    }

    /// The token.
    pub fn build(self) -> Arc<FakeToken> {
        Arc::new(FakeToken(Arc::new(Inner {
            info: Arc::new(self.info),
            answer: self.answer,
            takes_connections: self.takes_connections,
            changed: Condvar::new(),
            state: Mutex::new(FakeState {
                latency: self.latency,
                snapshot: Arc::new(Snapshot {
                    is_partial: false,
                    epoch: 1,
                    objects: self.objects,
                }),
                ..FakeState::default()
            }),
        })))
    }
}

/// Zeros of a plausible length.
fn plain_answer(operation: &Operation) -> Result<Outcome> {
    match operation {
        Operation::Random { len } => Ok(Outcome::Bytes(vec![0; *len as usize].into())),
        Operation::Use { data, .. } => Ok(Outcome::Bytes(data.clone())),
        Operation::Destroy { .. } | Operation::SetAttributes { .. } => Ok(Outcome::Done),
        other => Err(Error::vendor(other.call(), ck::CKR_FUNCTION_NOT_SUPPORTED)),
    }
}
