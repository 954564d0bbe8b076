//! Private keys in the pool: a signature is a future, and a handshake that waits for one holds no thread.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use boring::ex_data::Index;
use boring::ssl::{Ssl, SslRef, SslSignatureAlgorithm};
use hsmux_token::{Done, Error, Kind, ObjectId, Operation, Request, Result, Verb};
use tokio::sync::oneshot;
use tokio::time::timeout_at;
use tokio_boring::{
    AsyncPrivateKeyMethod, AsyncPrivateKeyMethodError, BoxPrivateKeyMethodFinish,
    BoxPrivateKeyMethodFuture,
};

use crate::algorithm::Algorithm;
use crate::metrics::Metrics;
use crate::signatures::{SignatureRequest, Signatures};

/// A key of the pool, as BoringSSL asks it.
#[derive(Clone)]
pub struct Signer {
    pub signatures: Arc<Signatures>,
    pub key: ObjectId,
    /// How long a handshake may wait.
    pub patience: Duration,
    pub metrics: Arc<Metrics>,
}

/// A signature that a token was asked for.
struct Asked {
    told: oneshot::Receiver<Result<bytes::Bytes>>,
    wanted: SignatureRequest,
    deadline: Instant,
}

/// What a handshake is waiting for.
#[derive(Default)]
pub struct Progress {
    /// Whose it is, where that is known.
    client: Option<SocketAddr>,
    signing: AtomicBool,
    signed: AtomicBool,
    failed: AtomicBool,
    refused: AtomicBool,
}

impl Progress {
    /// A client's, which has yet to begin.
    pub fn of(client: SocketAddr) -> Self {
        Self {
            client: Some(client),
            ..Self::default()
        }
    }

    /// Whether it waits for its signature: not for its client.
    pub fn is_signing(&self) -> bool {
        self.signing.load(Ordering::Acquire)
    }

    /// Whether a token has signed.
    pub fn is_signed(&self) -> bool {
        self.signed.load(Ordering::Acquire)
    }

    /// Where the client is.
    pub fn address(&self) -> IpAddr {
        let nowhere = Ipv6Addr::UNSPECIFIED.into();
        self.client.map_or(nowhere, |client| client.ip())
    }

    /// Whether no token has signed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// No token is asked for it.
    pub fn refuse(&self) {
        self.refused.store(true, Ordering::Release);
    }

    /// Whether no token was asked, for none would have signed in time.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }
}

/// Where a handshake's [`Progress`] is.
pub static PROGRESS: LazyLock<Index<Ssl, Arc<Progress>>> =
    LazyLock::new(|| Ssl::new_ex_index().expect("memory for an index"));

impl AsyncPrivateKeyMethod for Signer {
    fn sign(
        &self,
        ssl: &mut SslRef,
        input: &[u8],
        algorithm: SslSignatureAlgorithm,
        _output: &mut [u8],
    ) -> Result<BoxPrivateKeyMethodFuture, AsyncPrivateKeyMethodError> {
        let algorithm = Algorithm::of(algorithm).ok_or(AsyncPrivateKeyMethodError)?;
        let progress = ssl.ex_data(*PROGRESS).cloned().unwrap_or_default();
        // Whose session was not resumed has not been looked at before.
        if self.is_late(&progress) {
            progress.refuse();
            return Err(AsyncPrivateKeyMethodError);
        }
        let Asked {
            told,
            wanted,
            deadline,
        } = self.submit(algorithm, input, &progress);
        let waiting = self.metrics.signature(algorithm.name);
        progress.signing.store(true, Ordering::Release);
        Ok(Box::pin(async move {
            let _wanted = wanted;
            // The pool keeps to the deadline, too, once it has been asked.
            let result = match timeout_at((deadline + GRACE).into(), told).await {
                Ok(told) => told.unwrap_or_else(|_| Err(Error::lost("the pool has stopped"))),
                Err(_) => Err(too_late()),
            };
            progress.signing.store(false, Ordering::Release);
            let signature = waiting.ended(result).and_then(|raw| algorithm.finish(&raw));
            progress
                .signed
                .store(signature.is_some(), Ordering::Release);
            let Some(signature) = signature else {
                progress.failed.store(true, Ordering::Release);
                return Err(AsyncPrivateKeyMethodError);
            };
            let write: BoxPrivateKeyMethodFinish = Box::new(move |_, output| {
                let room = output.get_mut(..signature.len());
                room.ok_or(AsyncPrivateKeyMethodError)?
                    .copy_from_slice(&signature);
                Ok(signature.len())
            });
            Ok(write)
        }))
    }

    /// Only key exchanges with static RSA ask for this, and none is offered.
    fn decrypt(
        &self,
        _ssl: &mut SslRef,
        _input: &[u8],
        _output: &mut [u8],
    ) -> Result<BoxPrivateKeyMethodFuture, AsyncPrivateKeyMethodError> {
        Err(AsyncPrivateKeyMethodError)
    }
}

/// The pool's own answer says more: it comes just after the deadline.
const GRACE: Duration = Duration::from_millis(200);

/// This part of its patience is for what nobody can know: a token that signs for somebody who has just gone away has
/// done nothing for those who still wait, so it is better to take in one too few than one too many.
const MARGIN: u32 = 8;

impl Signer {
    /// Whether a handshake that came now would wait for too long, as far as the tokens have shown lately how fast
    /// they are.
    /// The same for a client that has no place in the queue.
    pub fn is_late(&self, progress: &Progress) -> bool {
        let most = self.patience.saturating_sub(self.patience / MARGIN);
        match self.signatures.wait_estimate(&self.key, progress.address()) {
            Ok(estimate) => estimate.is_some_and(|wait| wait > most),
            Err(_) => true,
        }
    }

    /// Asks for a signature.
    fn submit(&self, algorithm: &Algorithm, input: &[u8], progress: &Progress) -> Asked {
        let (mechanism, data) = algorithm.prepare(input);
        let (tell, told) = oneshot::channel();
        let operation = Operation::Use {
            verb: Verb::Sign,
            key: self.key.into(),
            mechanism,
            data: data.into(),
        };
        // The client may have gone away: then nobody is told.
        let done = Done::new(move |result| {
            drop(tell.send(result.and_then(hsmux_token::Outcome::into_bytes)));
        });
        let deadline = Instant::now() + self.patience;
        let request = Request {
            behalf: progress.client.map(|client| client.to_string().into()),
            operation,
            deadline,
            done,
        };
        let client = progress.address();
        Asked {
            told,
            wanted: self.signatures.ask(&self.key, client, request),
            deadline,
        }
    }
}

fn too_late() -> Error {
    let message = "C_Sign: other handshakes were signed for until the deadline";
    Error::pool(Kind::Deadline, message)
}
