//! Reloads the sites when their certificates, their keys or the configuration change, and warns of what has expired.
//! New handshakes use the new sites. Open connections keep their settings, but their clients' certificates are checked
//! again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hsmux_config::GatewaySection;
use hsmux_pool::Pool;
use hsmux_state::FileVersions;

use crate::app_state::AppState;
use crate::lifetime::{self, ReportedExpiries};
use crate::revocation;
use crate::sites::{FailedSite, SiteReader, Sites, files};

/// Watches for changes.
pub struct SiteWatcher {
    section: GatewaySection,
    versions: SiteVersions,
    reported: ReportedExpiries,
    /// Expired lists of revoked certificates that were logged.
    expired: Vec<PathBuf>,
    /// A site could not be read the last time.
    has_failed: bool,
}

/// Versions of what the sites were made from.
#[derive(Clone, PartialEq)]
struct SiteVersions {
    files: FileVersions,
    /// The pool's epoch: keys and certificates.
    epoch: u64,
    /// `true` if the members of a key can do something else than when the sites were read.
    outdated: bool,
}

/// How often changes are looked for.
const LOOK: Duration = Duration::from_millis(500);

impl SiteWatcher {
    /// To be called before the sites are read for the first time.
    pub fn new(section: &GatewaySection, pool: &Pool) -> Self {
        Self {
            section: section.clone(),
            versions: SiteVersions::now(section, pool, &Sites::default()),
            reported: ReportedExpiries::default(),
            expired: Vec::new(),
            has_failed: false,
        }
    }

    /// Reloads changed sites, for ever.
    pub async fn run(
        mut self,
        app: Arc<AppState>,
        current: impl Fn() -> Option<GatewaySection> + Send + Sync + 'static,
    ) {
        app.sites.load().start_checks(&app.files);
        loop {
            tokio::time::sleep(LOOK).await;
            let section = current().unwrap_or_else(|| self.section.clone());
            app.access_log.change(section.access_log.as_ref());
            let app = Arc::clone(&app);
            let looked = tokio::task::spawn_blocking(move || {
                self.reload_if_changed(&app, section);
                let sites = app.sites.load();
                self.warn_of_certificates(&sites);
                if self.warn_of_lists(&sites) {
                    app.changes.send_replace(());
                }
                self
            });
            match looked.await {
                Ok(back) => self = back,
                Err(error) => {
                    return tracing::error!(%error, "the gateway looks for changes no more");
                }
            }
        }
    }

    /// Logs certificates that have expired since the last call.
    pub fn warn_of_certificates(&mut self, sites: &Sites) {
        for one in self.reported.unreported(&sites.lifetimes, lifetime::now()) {
            tracing::warn!(
                "THE CERTIFICATE {} HAS EXPIRED: clients refuse it. It is served all the same; renew it.",
                one.name
            );
        }
    }

    /// Logs lists of revoked certificates that have expired since the last call. Returns whether there are any.
    pub fn warn_of_lists(&mut self, sites: &Sites) -> bool {
        let expired = revocation::expired(sites);
        let before = std::mem::replace(&mut self.expired, expired);
        let mut news = self.expired.iter().filter(|file| !before.contains(file));
        let any = news.clone().next().is_some();
        for file in &mut news {
            tracing::warn!(
                "THE CERTIFICATE REVOCATION LIST {} HAS EXPIRED: client certificates of its authority are refused until \
                 a new list is there.",
                file.display()
            );
        }
        any
    }

    fn reload_if_changed(&mut self, app: &AppState, section: GatewaySection) {
        let before = app.sites.load();
        let now = SiteVersions::now(&section, &app.pool, &before);
        // The pool changes often, but seldom in what matters here.
        let is_reload = section.sites != self.section.sites || now.files != self.versions.files;
        if !is_reload && now == self.versions {
            return;
        }
        self.section = section;
        self.versions = now;
        let reader = SiteReader {
            section: &self.section,
            signatures: &app.signatures,
            metrics: &app.metrics,
            tickets: app.tickets.as_ref(),
        };
        let (sites, failed) = reader.read_again(&before);
        sites.start_checks(&app.files);
        app.sites.store(Arc::new(sites));
        // This wakes every connection. A change of the pool alone changes no client_ca, unless a site had failed.
        if is_reload || self.has_failed {
            app.changes.send_replace(());
        }
        self.has_failed = !failed.is_empty();
        for FailedSite { name, error } in &failed {
            tracing::warn!(%error, "the site {name} is not read again: it is served as before, or not at all");
        }
        // A failed site is tried again when something else changes.
        if failed.is_empty() {
            self.versions.outdated = false;
            if is_reload {
                tracing::info!("the gateway has read its sites again");
            }
        }
    }
}

impl SiteVersions {
    fn now(section: &GatewaySection, pool: &Pool, sites: &Sites) -> Self {
        Self {
            files: FileVersions::of(files(section)),
            epoch: pool.catalogue().epoch,
            outdated: sites.are_outdated(pool),
        }
    }
}
