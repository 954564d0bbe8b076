//! Until when certificates are good.

use std::time::SystemTime;

use hsmux_token::KeyKind;

use crate::certificate::Credential;

/// Of a certificate that is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lifetime {
    /// The first name of its site.
    pub site: String,
    /// What kind of key it is for.
    pub key: &'static str,
    /// What people call it.
    pub name: String,
    /// When it expires, in seconds of Unix time.
    pub expires: i64,
}

impl Lifetime {
    /// Of a site's certificate.
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

    /// Whether it is over.
    pub fn has_expired(&self, now: i64) -> bool {
        self.expires <= now
    }

    /// Loudly.
    pub fn warn_if_expired(&self) {
        if self.has_expired(now()) {
            tracing::warn!(
                "THE CERTIFICATE {} HAS EXPIRED: clients refuse it. It is served all the same; renew it.",
                self.name
            );
        }
    }
}

/// Seconds of Unix time.
pub fn now() -> i64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    since.as_secs().cast_signed()
}
