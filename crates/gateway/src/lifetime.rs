//! Expiry of certificates, and which expired ones were already logged.

use std::time::SystemTime;

use hsmux_token::KeyKind;

use crate::certificate::Credential;

/// Expiry of a certificate that is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lifetime {
    /// The first name of its site.
    pub site: String,
    /// The kind of its key.
    pub key: &'static str,
    /// Its file or URI, for messages.
    pub name: String,
    /// When it expires, in seconds of Unix time.
    pub expires: i64,
}

impl Lifetime {
    /// The expiry of a site's certificate.
    pub fn of(site: &str, credential: &Credential) -> Self {
        Self {
            site: site.to_owned(),
            key: match credential.public.kind() {
                KeyKind::Ec => "ec",
                _ => "rsa",
            },
            name: credential.name.clone(),
            expires: credential.expires(),
        }
    }

    /// Whether it has expired.
    pub fn has_expired(&self, now: i64) -> bool {
        self.expires <= now
    }
}

/// Expired certificates that were logged: each is logged once.
#[derive(Default)]
pub struct ReportedExpiries(Vec<Lifetime>);

impl ReportedExpiries {
    /// Certificates that have expired and were not logged yet.
    pub fn unreported<'a>(&mut self, served: &'a [Lifetime], now: i64) -> Vec<&'a Lifetime> {
        let expired = || served.iter().filter(move |one| one.has_expired(now));
        let unreported = expired().filter(|one| !self.0.contains(one)).collect();
        self.0 = expired().cloned().collect();
        unreported
    }
}

/// Seconds of Unix time.
pub fn now() -> i64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    since.as_secs().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(name: &str, expires: i64) -> Lifetime {
        Lifetime {
            site: "a.test".to_owned(),
            key: "ec",
            name: name.to_owned(),
            expires,
        }
    }

    #[test]
    fn each_expired_certificate_is_reported_once() {
        let mut reported = ReportedExpiries::default();
        let mut served = [lifetime("a.pem", 1000), lifetime("b.pem", 2000)];
        assert!(reported.unreported(&served, 999).is_empty());
        assert_eq!(reported.unreported(&served, 1000), [&served[0]]);
        assert!(reported.unreported(&served, 1999).is_empty());
        assert_eq!(reported.unreported(&served, 2000), [&served[1]]);
        served[0].expires = 3000;
        assert!(reported.unreported(&served, 2999).is_empty());
        assert_eq!(reported.unreported(&served, 3000), [&served[0]]);
    }
}
