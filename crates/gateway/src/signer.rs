//! Private keys of the pool. A signature is a future: a handshake that waits for one holds no thread.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use boring::ex_data::Index;
use boring::ssl::{Ssl, SslRef, SslSignatureAlgorithm};
use hsmux_service::request_number;
use hsmux_token::{Behalf, Done, Error, Kind, ObjectId, Operation, Request, Result, Verb};
use tokio::sync::oneshot;
use tokio::time::timeout_at;
use tokio_boring::{
    AsyncPrivateKeyMethod, AsyncPrivateKeyMethodError, BoxPrivateKeyMethodFinish,
    BoxPrivateKeyMethodFuture,
};

use crate::algorithm::Algorithm;
use crate::metrics::Metrics;
use crate::signatures::{SignatureRequest, Signatures};

/// A key of the pool, for BoringSSL.
#[derive(Clone)]
pub struct Signer {
    pub signatures: Arc<Signatures>,
    pub key: ObjectId,
    /// How long a handshake may wait for its signature.
    pub patience: Duration,
    pub metrics: Arc<Metrics>,
}

/// A signature that was requested.
struct PendingSignature {
    told: oneshot::Receiver<Result<bytes::Bytes>>,
    wanted: SignatureRequest,
    deadline: Instant,
}

/// The progress of a handshake.
#[derive(Default)]
pub struct HandshakeProgress {
    /// Its client, if known.
    client: Option<SocketAddr>,
    signing: AtomicBool,
    signed: AtomicBool,
    failed: AtomicBool,
    refused: AtomicBool,
}

impl HandshakeProgress {
    /// The progress of a client's handshake that has yet to begin.
    pub fn of(client: SocketAddr) -> Self {
        Self {
            client: Some(client),
            ..Self::default()
        }
    }

    /// Whether it waits for its signature, and not for its client.
    pub fn is_signing(&self) -> bool {
        self.signing.load(Ordering::Acquire)
    }

    /// Whether a token has signed.
    pub fn is_signed(&self) -> bool {
        self.signed.load(Ordering::Acquire)
    }

    /// The client's address.
    pub fn address(&self) -> IpAddr {
        let nowhere = Ipv6Addr::UNSPECIFIED.into();
        self.client.map_or(nowhere, |client| client.ip())
    }

    /// Whether the signature has failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Refuses the handshake: no token is asked.
    pub fn refuse(&self) {
        self.refused.store(true, Ordering::Release);
    }

    /// Whether it was refused because no token would have signed in time.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }
}

/// Index of a handshake's [`HandshakeProgress`] in its `Ssl`.
pub static PROGRESS: LazyLock<Index<Ssl, Arc<HandshakeProgress>>> =
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
        // Not checked before if the client offered a session that was not resumed.
        if self.is_late(&progress) {
            progress.refuse();
            return Err(AsyncPrivateKeyMethodError);
        }
        let PendingSignature {
            told,
            wanted,
            deadline,
        } = self.submit(algorithm, input, &progress);
        let waiting = self.metrics.signature(algorithm.name);
        progress.signing.store(true, Ordering::Release);
        Ok(Box::pin(async move {
            let _wanted = wanted;
            // The pool keeps to the deadline as well, once it has the request.
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

    /// Only key exchanges with static RSA need this, and none is offered.
    fn decrypt(
        &self,
        _ssl: &mut SslRef,
        _input: &[u8],
        _output: &mut [u8],
    ) -> Result<BoxPrivateKeyMethodFuture, AsyncPrivateKeyMethodError> {
        Err(AsyncPrivateKeyMethodError)
    }
}

/// How long the pool's own error is awaited after the deadline: it says more.
const GRACE: Duration = Duration::from_millis(200);

/// An eighth of the patience is a margin for errors of the estimate. A signature for a client that has given up helps
/// nobody, so refusing one too many is better than one too few.
const MARGIN: u32 = 8;

impl Signer {
    /// Estimates whether a new handshake would wait too long, by the recent speed of the tokens. Also `true` if the
    /// queue would refuse it.
    pub fn is_late(&self, progress: &HandshakeProgress) -> bool {
        let most = self.patience.saturating_sub(self.patience / MARGIN);
        match self.signatures.wait_estimate(&self.key, progress.address()) {
            Ok(estimate) => estimate.is_some_and(|wait| wait > most),
            Err(_) => true,
        }
    }

    /// Requests a signature.
    fn submit(
        &self,
        algorithm: &Algorithm,
        input: &[u8],
        progress: &HandshakeProgress,
    ) -> PendingSignature {
        let (mechanism, data) = algorithm.prepare(input);
        let (tell, told) = oneshot::channel();
        let operation = Operation::Use {
            verb: Verb::Sign,
            key: self.key.into(),
            mechanism,
            data: data.into(),
        };
        // The client may have gone: then nobody receives it.
        let done = Done::new(move |result| {
            drop(tell.send(result.and_then(hsmux_token::Outcome::into_bytes)));
        });
        let deadline = Instant::now() + self.patience;
        let request = Request {
            behalf: Some(Box::new(Behalf {
                client: progress.client.map(|client| client.to_string()),
                request: request_number(),
                ..Behalf::default()
            })),
            operation,
            deadline,
            done,
        };
        let client = progress.address();
        PendingSignature {
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
