//! Ticket keys that all hosts of a cluster share. They are derived from one secret and the time: hosts with the same
//! secret have the same keys without talking to each other.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::ticket_keys::{TicketKey, TicketKeyRing, TicketKeys};
use boring::hash::hmac_sha256;
use hsmux_config::{GatewaySection, ObjectSource};
use hsmux_pool::Pool;
use hsmux_state::FileVersions;
use hsmux_token::permissions::SecretReaders;
use hsmux_token::{Error, Kind, Mechanism, Operation, Outcome, Result, Token, Uri, Verb, ck};
use zeroize::Zeroizing;

use crate::certificate::the_one;
use crate::metrics::Metrics;

/// The ticket keys, and what the next ones are derived from.
pub struct TicketKeyRotation {
    secret: ObjectSource,
    rotation: u64,
    pool: Arc<Pool>,
    metrics: Arc<Metrics>,
    keys: TicketKeys,
    input: Option<KeyInput>,
}

/// The input that keys were derived from.
#[derive(PartialEq)]
struct KeyInput {
    /// Rotations since the beginning of Unix time.
    period: u64,
    file: Option<FileVersions>,
}

/// How often the clock and the file are checked, and the time limit of a token.
const LOOK: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);

impl TicketKeyRotation {
    /// Derives the first keys. `None`: hosts share none. If the secret is on a token that does not answer yet, the keys
    /// are this process's own until it does.
    pub fn of(
        section: &GatewaySection,
        pool: &Arc<Pool>,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<Self>> {
        let Some(secret) = section.ticket_secret.clone() else {
            return Ok(None);
        };
        let own = TicketKeyRing {
            current: TicketKey::random().map_err(|e| wrong(&secret, e))?,
            previous: None,
            next: None,
        };
        let mut tickets = Self {
            rotation: section.ticket_rotation.as_secs(),
            secret,
            pool: Arc::clone(pool),
            metrics: Arc::clone(metrics),
            keys: TicketKeys::new(own),
            input: None,
        };
        match (tickets.update(), &tickets.secret) {
            (Err(error), ObjectSource::File(_)) => return Err(error),
            (Err(error), ObjectSource::Pool(_)) => {
                tracing::warn!(%error, "session tickets are not shared with other hosts yet");
            }
            (Ok(()), _) => {}
        }
        Ok(Some(tickets))
    }

    /// The keys for contexts of TLS.
    pub fn keys(&self) -> &TicketKeys {
        &self.keys
    }

    /// Derives the next keys in time, for ever.
    pub async fn run(mut self) {
        let mut is_reported = self.input.is_none();
        loop {
            tokio::time::sleep(LOOK).await;
            let looked = tokio::task::spawn_blocking(move || {
                let looked = self.update();
                (self, looked)
            });
            let Ok((back, result)) = looked.await else {
                return tracing::error!("the keys of session tickets change no more");
            };
            self = back;
            let failed = result.is_err();
            if let (Err(error), false) = (result, is_reported) {
                tracing::warn!(%error, "the keys of session tickets are as they were");
            }
            is_reported = failed;
        }
    }

    /// Derives new keys if their period or their secret has changed.
    fn update(&mut self) -> Result<()> {
        self.update_at(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
    }

    /// As [`Self::update`], at this Unix time.
    fn update_at(&mut self, time: Duration) -> Result<()> {
        let now = KeyInput {
            period: time.as_secs() / self.rotation,
            file: match &self.secret {
                ObjectSource::File(file) => Some(FileVersions::of([file.as_path()])),
                ObjectSource::Pool(_) => None,
            },
        };
        if self.input.as_ref() == Some(&now) {
            return Ok(());
        }
        let ring = ring(now.period, |period| self.secret_of(period))?;
        self.keys.replace(ring);
        self.metrics.ticket_keys(now.period * self.rotation);
        self.input = Some(now);
        Ok(())
    }

    /// The secret of a period: HMAC-SHA256 of the period under the cluster's secret.
    fn secret_of(&self, period: u64) -> Result<Zeroizing<[u8; 32]>> {
        let mut words = b"hsmux session tickets, 1".to_vec();
        words.extend(self.rotation.to_be_bytes());
        words.extend(period.to_be_bytes());
        match &self.secret {
            ObjectSource::File(file) => hmac_sha256(&read(file)?, &words)
                .map(Zeroizing::new)
                .map_err(|e| wrong(&self.secret, e)),
            ObjectSource::Pool(uri) => self.ask(uri, words),
        }
    }

    fn ask(&self, uri: &Uri, words: Vec<u8>) -> Result<Zeroizing<[u8; 32]>> {
        let object = the_one(uri, &self.pool).map_err(|why| wrong(&self.secret, why))?;
        let operation = Operation::Use {
            verb: Verb::Sign,
            key: object.id.into(),
            mechanism: Mechanism::plain(ck::CKM_SHA256_HMAC),
            data: words.into(),
        };
        let outcome = self.pool.execute(&operation, Instant::now() + PATIENCE);
        let mac = outcome.and_then(Outcome::into_bytes)?;
        let mac = <[u8; 32]>::try_from(&mac[..]);
        mac.map(Zeroizing::new)
            .map_err(|_| wrong(&self.secret, "its HMAC-SHA256 does not have 32 bytes"))
    }
}

/// The keys of a period, with those before and after it: clocks of other hosts may differ.
fn ring(period: u64, secret: impl Fn(u64) -> Result<Zeroizing<[u8; 32]>>) -> Result<TicketKeyRing> {
    let key = |period| Ok(TicketKey::derive(&*secret(period)?));
    Ok(TicketKeyRing {
        current: key(period)?,
        previous: period.checked_sub(1).map(key).transpose()?,
        next: Some(key(period + 1)?),
    })
}

/// Reads a secret from a file. It needs 32 bytes, as the keys have.
fn read(file: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let source = ObjectSource::File(file.to_owned());
    let secret = SecretReaders::Owner.read(file);
    let secret = secret.map_err(|e| wrong(&source, e))?;
    if secret.len() < 32 {
        let message = "it has less than 32 bytes; make one: openssl rand -out FILE 32";
        return Err(wrong(&source, message));
    }
    Ok(secret)
}

fn wrong(secret: &ObjectSource, why: impl std::fmt::Display) -> Error {
    let shown = match secret {
        ObjectSource::File(file) => file.display().to_string(),
        ObjectSource::Pool(uri) => uri.to_string(),
    };
    let message = format!("[gateway] ticket_secret {shown}: {why}");
    Error::pool(Kind::Environment, message)
}

#[cfg(test)]
mod tests;
