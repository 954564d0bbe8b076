//! What changes while the gateway runs: certificates and keys in their files and in the pool, sites in the
//! configuration; and what expires. What is open stays as it is; new handshakes have what is new.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hsmux_config::GatewaySection;
use hsmux_pool::Pool;
use hsmux_state::FileVersions;

use crate::house::House;
use crate::lifetime::{self, Told};
use crate::revocation;
use crate::sites::{FailedSite, SiteReader, Sites, files};

/// Who looks.
pub struct Watch {
    section: GatewaySection,
    seen: Seen,
    told: Told,
    /// Lists of revoked certificates that have expired.
    expired: Vec<PathBuf>,
}

/// What the sites were made of.
#[derive(Clone, PartialEq)]
struct Seen {
    files: FileVersions,
    /// The pool's epoch: keys and certificates.
    epoch: u64,
    /// Those that hold the keys have come or gone, and can do other than before.
    outdated: bool,
}

/// How often.
const LOOK: Duration = Duration::from_millis(500);

impl Watch {
    /// Before the sites are read for the first time.
    pub fn new(section: &GatewaySection, pool: &Pool) -> Self {
        Self {
            section: section.clone(),
            seen: Seen::now(section, pool, &Sites::default()),
            told: Told::default(),
            expired: Vec::new(),
        }
    }

    /// Takes over what has changed, for ever.
    pub async fn run(
        mut self,
        house: Arc<House>,
        current: impl Fn() -> Option<GatewaySection> + Send + Sync + 'static,
    ) {
        house.sites.load().keep_asking(&house.files);
        loop {
            tokio::time::sleep(LOOK).await;
            let section = current().unwrap_or_else(|| self.section.clone());
            let house = Arc::clone(&house);
            let looked = tokio::task::spawn_blocking(move || {
                self.look(&house, section);
                let sites = house.sites.load();
                self.warn(&sites);
                if self.warn_of_lists(&sites) {
                    house.changes.send_replace(());
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

    /// Tells what has expired since it last did so.
    pub fn warn(&mut self, sites: &Sites) {
        for one in self.told.news(&sites.lifetimes, lifetime::now()) {
            tracing::warn!(
                "THE CERTIFICATE {} HAS EXPIRED: clients refuse it. It is served all the same; renew it.",
                one.name
            );
        }
    }

    /// Tells which lists of revoked certificates have expired since it last did so; whether there are any.
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

    fn look(&mut self, house: &House, section: GatewaySection) {
        let before = house.sites.load();
        let now = Seen::now(&section, &house.pool, &before);
        // What the pool holds changes often, and seldom what matters here.
        let asked = section.sites != self.section.sites || now.files != self.seen.files;
        if !asked && now == self.seen {
            return;
        }
        self.section = section;
        self.seen = now;
        let reader = SiteReader {
            section: &self.section,
            signatures: &house.signatures,
            metrics: &house.metrics,
            tickets: house.tickets.as_ref(),
        };
        let (sites, failed) = reader.read_again(&before);
        sites.keep_asking(&house.files);
        house.sites.store(Arc::new(sites));
        house.changes.send_replace(());
        for FailedSite { name, error } in &failed {
            tracing::warn!(%error, "the site {name} is not read again: it is served as before, or not at all");
        }
        // A site that failed is tried again when something has changed.
        if failed.is_empty() {
            self.seen.outdated = false;
            if asked {
                tracing::info!("the gateway has read its sites again");
            }
        }
    }
}

impl Seen {
    fn now(section: &GatewaySection, pool: &Pool, sites: &Sites) -> Self {
        Self {
            files: FileVersions::of(files(section)),
            epoch: pool.catalogue().epoch,
            outdated: sites.are_outdated(pool),
        }
    }
}
