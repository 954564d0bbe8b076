//! The current issuer of JWTs: its keys come from a file, which is read again when it changes, or from its server.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use hsmux_config::{JwkSet, JwkUrl, Jwt};
use hsmux_edge::HttpEndpoint;
use hsmux_state::FileVersions;
use hsmux_token::{Error, Kind, Result};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::TokenOwner;
use super::jwt::{Issuer, JwtVerdict};
use crate::refusal::Refusal;

/// The issuer whose JWTs are accepted, if one is configured.
#[derive(Default)]
pub struct IssuerTrust {
    keys: ArcSwapOption<IssuerKeys>,
    source: Mutex<KeySource>,
    /// One asks at a time.
    turn: tokio::sync::Mutex<()>,
}

/// The issuer with its keys at one moment.
struct IssuerKeys {
    issuer: Arc<Issuer>,
    since: Instant,
    /// `None`: until their file changes.
    good_for: Option<Duration>,
}

/// The source of the issuer's keys.
#[derive(Default)]
struct KeySource {
    settings: Option<Jwt>,
    stamp: FileVersions,
    /// When the server was asked last, and whether that failed.
    asked: Option<Instant>,
    in_vain: bool,
}

/// The longest set, in bytes: issuers have a few keys, of some hundred bytes each.
const LONGEST: usize = 256 << 10;

/// How long the server may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two queries of a server that does not answer.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// The time between two queries for unknown keys: made-up tokens must not flood the issuer.
const MIN_INTERVAL: Duration = Duration::from_secs(5);

/// The time that a request waits for the server.
const REQUEST_WAIT: Duration = Duration::from_secs(2);

impl IssuerTrust {
    /// True if the token is a JWT and an issuer is configured.
    pub fn judges(&self, token: &str) -> bool {
        Issuer::is_jwt(token) && self.source.lock().settings.is_some()
    }

    /// The client, if its token was verified before.
    pub fn known(&self, token: &str) -> Option<TokenOwner> {
        self.issuer()?.known(token)
    }

    /// The client, if its token is valid. An unknown key may be new: then the server is asked.
    pub async fn owner(self: &Arc<Self>, token: &str) -> Result<Option<TokenOwner>, Refusal> {
        let judged = self.issuer().map(|issuer| issuer.verify(token));
        if let Some(verdict @ (JwtVerdict::Good(_) | JwtVerdict::Bad)) = judged {
            return Ok(verdict.owner());
        }
        self.ask_for_a_moment().await;
        let without = || Refusal::later("the keys of the JWTs' issuer cannot be fetched", None);
        let issuer = self.issuer().ok_or_else(without)?;
        Ok(issuer.verify(token).owner())
    }

    /// The age of the fetched keys, if there are any.
    pub fn age(&self) -> Option<Duration> {
        let keys = self.keys.load();
        let keys = keys.as_ref().filter(|keys| keys.good_for.is_some())?;
        Some(keys.since.elapsed())
    }

    /// Reads the issuer's keys from their file if the path or the file has changed; returns whether it has. An
    /// unreadable file changes nothing. Keys from a file are dropped when the configuration changes to a server: the
    /// server may never answer, and the old keys would stay valid for ever. Blocks.
    pub fn refresh(&self, settings: Option<&Jwt>) -> Result<bool> {
        let mut source = self.source.lock();
        let now = FileVersions::of(settings.and_then(file));
        if source.settings.as_ref() == settings && source.stamp == now {
            return Ok(false);
        }
        *source = KeySource {
            settings: settings.cloned(),
            stamp: now,
            ..KeySource::default()
        };
        let Some(settings) = settings else {
            self.keys.store(None);
            return Ok(true);
        };
        let file = match &settings.keys {
            JwkSet::File(file) => file,
            JwkSet::Url(from) => return Ok(self.keep_of(settings, from.max_age)),
        };
        let text = std::fs::read(file).map_err(|e| failed(settings, &e))?;
        self.take_over(settings, &text, None)
    }

    /// Stores keys of this server, with their lifetime; returns whether they have changed.
    fn keep_of(&self, settings: &Jwt, max_age: Duration) -> bool {
        let Some(keys) = self.keys.load_full() else {
            return false;
        };
        let same = keys.issuer.is_from(settings);
        let kept = same.then(|| IssuerKeys {
            issuer: Arc::clone(&keys.issuer),
            since: keys.since,
            good_for: Some(max_age),
        });
        self.keys.store(kept.map(Arc::new));
        !same
    }

    /// Asks the issuer's server for its keys when they are due.
    pub async fn keep_fresh(&self) {
        self.ask(KeySource::is_due).await;
    }

    /// Asks it now, unless it was asked just before; the wait is limited.
    async fn ask_for_a_moment(self: &Arc<Self>) {
        let trust = Arc::clone(self);
        let asking = tokio::spawn(async move { trust.ask(KeySource::is_rested).await });
        let _ = timeout(REQUEST_WAIT, asking).await;
    }

    async fn ask(&self, whether: fn(&KeySource, &JwkUrl) -> bool) {
        let _turn = self.turn.lock().await;
        let Some((settings, from)) = self.begin(whether) else {
            return;
        };
        let fetched = self.fetch(&settings, &from).await;
        self.source.lock().in_vain = fetched.is_err();
        match fetched {
            Ok(true) => tracing::info!("the broker has other keys of the JWTs' issuer"),
            Ok(false) => {}
            Err(error) => {
                let error = self.with_age(&error, &from);
                tracing::warn!(%error, "keys of the JWTs' issuer are as they were");
            }
        }
    }

    /// True if the keys are other ones by now.
    async fn fetch(&self, settings: &Jwt, from: &JwkUrl) -> Result<bool> {
        let url = from.clone();
        let remote =
            tokio::task::spawn_blocking(move || HttpEndpoint::new(&url.url, url.ca.as_deref()));
        let remote = remote.await.map_err(|e| failed(settings, &e))?;
        let text = remote?
            .get("application/json", LONGEST, FETCH_TIMEOUT)
            .await?;
        let source = self.source.lock();
        // The issuer may have changed meanwhile.
        if source.settings.as_ref() != Some(settings) {
            return Ok(false);
        }
        self.take_over(settings, &text, Some(from.max_age))
    }

    fn take_over(&self, settings: &Jwt, text: &[u8], good_for: Option<Duration>) -> Result<bool> {
        let before = self.keys.load_full().map(|keys| Arc::clone(&keys.issuer));
        let same = before.filter(|issuer| issuer.is_of(settings, text));
        let changed = same.is_none();
        let issuer = match same {
            // Unchanged keys keep the verified tokens.
            Some(issuer) => issuer,
            None => {
                Arc::new(Issuer::new(settings.clone(), text).map_err(|e| failed(settings, &e))?)
            }
        };
        self.keys.store(Some(Arc::new(IssuerKeys {
            issuer,
            since: Instant::now(),
            good_for,
        })));
        Ok(changed)
    }

    /// The server to ask now, if any.
    fn begin(&self, whether: fn(&KeySource, &JwkUrl) -> bool) -> Option<(Jwt, JwkUrl)> {
        let mut source = self.source.lock();
        let settings = source.settings.clone()?;
        let JwkSet::Url(from) = &settings.keys else {
            return None;
        };
        let from = from.clone();
        whether(&source, &from).then(|| {
            source.asked = Some(Instant::now());
            (settings, from)
        })
    }

    /// The issuer, if its keys are not too old.
    fn issuer(&self) -> Option<Arc<Issuer>> {
        let keys = self.keys.load();
        let keys = keys.as_ref()?;
        let young = |good_for| keys.since.elapsed() < good_for;
        keys.good_for
            .is_none_or(young)
            .then(|| Arc::clone(&keys.issuer))
    }

    fn with_age(&self, error: &Error, from: &JwkUrl) -> Error {
        let (age, most) = (self.age(), from.max_age);
        let state = match age.map(|age| Duration::from_secs(age.as_secs())) {
            None => "there are none yet, and JWTs are refused".into(),
            Some(age) if age < most => {
                let (age, most) = (
                    humantime::Duration::from(age),
                    humantime::Duration::from(most),
                );
                format!("they are {age} old, and hold until they are {most} old")
            }
            Some(age) => {
                let age = humantime::Duration::from(age);
                format!("they are {age} old, which is too old: JWTs are refused")
            }
        };
        Error::pool(Kind::Environment, format!("{error}; {state}"))
    }
}

impl KeySource {
    fn is_due(&self, from: &JwkUrl) -> bool {
        let pause = if self.in_vain {
            RETRY_AFTER.min(from.refresh)
        } else {
            from.refresh
        };
        self.asked.is_none_or(|at| at.elapsed() >= pause)
    }

    fn is_rested(&self, _: &JwkUrl) -> bool {
        self.asked.is_none_or(|at| at.elapsed() >= MIN_INTERVAL)
    }
}

fn file(settings: &Jwt) -> Option<&Path> {
    match &settings.keys {
        JwkSet::File(file) => Some(file),
        JwkSet::Url(_) => None,
    }
}

fn failed(settings: &Jwt, why: &dyn std::fmt::Display) -> Error {
    let place = match &settings.keys {
        JwkSet::File(file) => file.display().to_string(),
        JwkSet::Url(from) => from.url.clone(),
    };
    Error::pool(
        Kind::Environment,
        format!("[broker] jwt_keys {place}: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set of one key (RFC 7517, appendix A.1).
    const SET: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256",
        "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
        "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;

    fn jwt(keys: JwkSet) -> Jwt {
        Jwt {
            keys,
            issuer: "issuer".into(),
            audience: "broker".into(),
            name: "sub".into(),
        }
    }

    /// A server that is never asked here, with its refresh interval.
    fn server(url: &str, minutes: u64) -> Jwt {
        jwt(JwkSet::Url(JwkUrl {
            url: url.into(),
            ca: None,
            refresh: Duration::from_secs(60 * minutes),
            max_age: Duration::from_secs(60 * 60),
        }))
    }

    #[test]
    fn keys_of_a_file_do_not_outlive_the_change_to_a_server() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("jwks.json");
        std::fs::write(&file, SET).unwrap();
        let trust = IssuerTrust::default();
        assert!(trust.refresh(Some(&jwt(JwkSet::File(file)))).unwrap());
        assert!(trust.issuer().is_some());
        trust.refresh(Some(&server("https://one/", 1))).unwrap();
        assert!(trust.issuer().is_none());
        assert!(trust.judges("a.b.c"));
    }

    #[test]
    fn keys_of_a_server_hold_while_it_is_the_same() {
        let trust = IssuerTrust::default();
        let one = server("https://one/", 1);
        trust.refresh(Some(&one)).unwrap();
        let hour = Some(Duration::from_secs(60 * 60));
        trust.take_over(&one, SET.as_bytes(), hour).unwrap();
        for same in [one, server("https://one/", 2)] {
            assert!(!trust.refresh(Some(&same)).unwrap());
            assert!(trust.issuer().is_some());
        }
        let mut short = server("https://one/", 2);
        if let JwkSet::Url(from) = &mut short.keys {
            from.max_age = Duration::ZERO;
        }
        trust.refresh(Some(&short)).unwrap();
        assert!(trust.issuer().is_none());
        trust.take_over(&short, SET.as_bytes(), hour).unwrap();
        trust.refresh(Some(&server("https://two/", 2))).unwrap();
        assert!(trust.issuer().is_none());
        let mut pinned = server("https://two/", 2);
        if let JwkSet::Url(from) = &mut pinned.keys {
            from.ca = Some("roots.pem".into());
        }
        trust
            .take_over(&server("https://two/", 2), SET.as_bytes(), hour)
            .unwrap();
        assert!(trust.refresh(Some(&pinned)).unwrap());
        assert!(trust.issuer().is_none());
    }
}
