//! The sites that are served, and which of them a client gets.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ticket_keys::TicketKeys;
use boring::error::ErrorStack;
use boring::ssl::ClientHello;
use hsmux_config::{Certificate, GatewaySection, ObjectSource, Site};
use hsmux_pool::{Catalogue, Pool};
use hsmux_software::revocation::Revocation;
use hsmux_token::{Error, KeyKind, ObjectId, Result};
use hyper::header::HeaderValue;

use crate::algorithm::Ability;
use crate::backend::Backends;
use crate::certificate::{CertificateKey, Credential};
use crate::client_roots::ClientRoots;
use crate::file_budget::FileBudget;
use crate::lifetime::Lifetime;
use crate::metrics::Metrics;
use crate::revocation;
use crate::signatures::Signatures;
use crate::signer::Signer;
use crate::tls::{CertificateContext, Resumption};

/// A site that is ready to be served.
pub struct ServedSite {
    pub site: Site,
    /// The servers behind it.
    pub backends: Arc<Backends>,
    /// EC first. Empty: none of its certificates exists yet.
    contexts: Vec<CertificateContext>,
    /// Roots of client certificates, if the site asks for them.
    pub client_roots: Option<Arc<ClientRoots>>,
    /// Lists of revoked client certificates.
    pub revocation: Option<Arc<Revocation>>,
    /// The field that tells browsers to use TLS only (RFC 6797), if configured.
    pub hsts: Option<HeaderValue>,
    /// Keys of the pool that it needs, and what their members could do when they were read.
    keys: Vec<(ObjectId, Ability)>,
    /// Files of its certificates that existed.
    chains: HashSet<PathBuf>,
    /// Their expiry.
    lifetimes: Vec<Lifetime>,
    /// Number of certificates that an ACME client has yet to write.
    awaited: usize,
}

/// All sites.
#[derive(Default)]
pub struct Sites {
    by_name: HashMap<String, Arc<ServedSite>>,
    /// Keys of the pool that they need, and what their members could do when they were read.
    pub keys: Vec<(ObjectId, Ability)>,
    /// Files of certificates that existed.
    chains: HashSet<PathBuf>,
    /// Their expiry.
    pub lifetimes: Vec<Lifetime>,
    /// Number of certificates that an ACME client has yet to write.
    pub awaited: usize,
}

/// A site that could not be read.
pub struct FailedSite {
    /// Its first name.
    pub name: String,
    /// Why.
    pub error: Error,
}

/// Reads the sites of a gateway.
pub struct SiteReader<'a> {
    pub section: &'a GatewaySection,
    pub signatures: &'a Arc<Signatures>,
    pub metrics: &'a Arc<Metrics>,
    pub tickets: Option<&'a TicketKeys>,
}

impl SiteReader<'_> {
    /// Reads all certificates and keys of all sites. Stops at the first error.
    pub fn read(&self) -> Result<Sites> {
        let (before, mut sites) = (Sites::default(), Sites::default());
        for site in &self.section.sites {
            sites.add(&site.names, &Arc::new(self.site(&before, site)?));
        }
        self.signatures
            .learn(sites.keys.iter().map(|(key, _)| *key));
        Ok(sites)
    }

    /// Reads them again. If a site cannot be read, its names are served as `before`, or not at all.
    pub fn read_again(&self, before: &Sites) -> (Sites, Vec<FailedSite>) {
        let (mut sites, mut failed) = (Sites::default(), Vec::new());
        for site in &self.section.sites {
            match self.site(before, site) {
                Ok(served) => sites.add(&site.names, &Arc::new(served)),
                Err(error) => {
                    sites.keep(before, &site.names);
                    let name = site.names[0].clone();
                    failed.push(FailedSite { name, error });
                }
            }
        }
        self.signatures
            .learn(sites.keys.iter().map(|(key, _)| *key));
        (sites, failed)
    }

    /// Reads one site. A certificate that an ACME client has yet to write may be missing, unless it existed `before`.
    fn site(&self, before: &Sites, site: &Site) -> Result<ServedSite> {
        let section = self.section;
        let pool = self.signatures.pool();
        let tickets = Resumption::of(section, self.tickets);
        let earlier = before.by_name.get(&site.names[0]);
        let clients = site.clients.as_ref();
        let roots = earlier.and_then(|served| served.client_roots.as_ref());
        let client_roots = clients.map(|clients| ClientRoots::read(clients, roots));
        let client_roots = client_roots.transpose()?;
        let lists = earlier.and_then(|served| served.revocation.as_deref());
        let revocation = revocation::read(clients, client_roots.as_deref(), lists)?;
        let hsts = (site.hsts > 0)
            .then(|| HeaderValue::from_str(&format!("max-age={}", site.hsts)).ok())
            .flatten();
        let mut served = ServedSite {
            backends: before.backends(site)?,
            client_roots,
            revocation,
            site: site.clone(),
            contexts: Vec::new(),
            hsts,
            keys: Vec::new(),
            chains: HashSet::new(),
            lifetimes: Vec::new(),
            awaited: 0,
        };
        for given in &site.certificates {
            if let ObjectSource::File(file) = &given.chain {
                let acme = site.acme.as_ref().or(section.acme.as_ref());
                let awaited = acme.is_some() && !before.chains.contains(file);
                if awaited && file.try_exists().is_ok_and(|there| !there) {
                    served.awaited += 1;
                    warn_of_absence(&site.names[0], file);
                    continue;
                }
                served.chains.insert(file.clone());
            }
            let credential = Credential::read(given, pool, site.allow_rsa_1024)?;
            served
                .lifetimes
                .push(Lifetime::of(&site.names[0], &credential));
            let ec = credential.public.kind() == KeyKind::Ec;
            let ability = match credential.key {
                CertificateKey::Pool(key) => {
                    let ability = of_holders(ec, &key, &pool.catalogue());
                    served.keys.push((key, ability.clone()));
                    ability
                }
                CertificateKey::File(_) => Ability::of(ec, |_| true),
            };
            let signer = |key| Signer {
                signatures: Arc::clone(self.signatures),
                key,
                patience: section.sign_timeout,
                metrics: Arc::clone(self.metrics),
            };
            let context = CertificateContext::new(
                site,
                &credential,
                ability,
                tickets,
                served.client_roots.as_deref(),
                signer,
            )?;
            served.contexts.push(context);
        }
        served.contexts.sort_by_key(|context| !context.is_ec());
        Ok(served)
    }
}

impl Sites {
    /// Adds a site by these names.
    fn add(&mut self, names: &[String], served: &Arc<ServedSite>) {
        let mut others = self.by_name.values();
        if !others.any(|other| Arc::ptr_eq(other, served)) {
            self.keys.extend(served.keys.iter().cloned());
            self.chains.extend(served.chains.iter().cloned());
            self.lifetimes.extend(served.lifetimes.iter().cloned());
            self.awaited += served.awaited;
        }
        for name in names {
            self.by_name.insert(name.clone(), Arc::clone(served));
        }
    }

    /// Keeps these names as `before`, if they were served.
    fn keep(&mut self, before: &Self, names: &[String]) {
        for name in names {
            if let Some(served) = before.by_name.get(name) {
                self.add(std::slice::from_ref(name), served);
            }
        }
    }

    /// The servers behind a site. Those of `self` are kept if they are unchanged, with their open connections and
    /// health.
    fn backends(&self, site: &Site) -> Result<Arc<Backends>> {
        let before = self.by_name.get(&site.names[0]);
        match before.filter(|served| served.backends.are_of(site)) {
            Some(served) => Ok(Arc::clone(&served.backends)),
            None => Backends::of(site).map(Arc::new),
        }
    }

    /// `true` if the members of a key can do something else than when it was read.
    pub fn are_outdated(&self, pool: &Pool) -> bool {
        let catalogue = pool.catalogue();
        let changed = |(key, ability): &(ObjectId, Ability)| {
            of_holders(ability.ec, key, &catalogue) != *ability
        };
        self.keys.iter().any(changed)
    }

    /// Starts the health checks that are configured.
    pub fn start_checks(&self, files: &FileBudget) {
        for served in self.each() {
            served.backends.start_checks(files);
        }
    }

    /// Each site once.
    pub fn each(&self) -> impl Iterator<Item = &ServedSite> {
        let each = self.by_name.iter();
        let first = each.filter(|(name, served)| **name == served.site.names[0]);
        first.map(|(_, served)| &**served)
    }

    /// The site of a name: by the name itself, by `*.` and the rest, or by `*`, which also serves clients without a
    /// name.
    pub fn find(&self, name: Option<&str>) -> Option<Arc<ServedSite>> {
        let mut names = names_for(name);
        names.find_map(|name| self.by_name.get(&*name).cloned())
    }

    /// The sites that serve these names now, each once.
    pub fn serving(&self, names: &[String]) -> Vec<Arc<ServedSite>> {
        // One is often asked, for each connection after a change.
        if let [name] = names {
            return self.find(Some(name)).into_iter().collect();
        }
        let mut serving: Vec<Arc<ServedSite>> = Vec::new();
        for served in names.iter().filter_map(|name| self.find(Some(name))) {
            if !serving.iter().any(|other| Arc::ptr_eq(other, &served)) {
                serving.push(served);
            }
        }
        serving
    }

    /// Whether a host belongs to the site of a connection. The names are those of the time when the connection was
    /// opened, unless another site has a closer one by now.
    pub fn is_of(&self, site: &Site, host: &str) -> bool {
        let mut names = names_for(Some(host));
        let is_ours = |name: &str| site.names.iter().any(|own| own == name);
        let closest = names.find(|name| is_ours(name) || self.by_name.contains_key(&**name));
        closest.is_some_and(|name| is_ours(&name))
    }
}

/// The names to look up for a client's name, the closest first.
fn names_for(name: Option<&str>) -> impl Iterator<Item = Cow<'_, str>> {
    let name = name.map(|name| name.trim_end_matches('.'));
    let rest = name.and_then(|name| name.split_once('.'));
    let own = name.into_iter().map(|name| {
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(name.to_ascii_lowercase())
        } else {
            Cow::Borrowed(name)
        }
    });
    let any = rest.into_iter();
    own.chain(any.map(|(_, rest)| format!("*.{}", rest.to_ascii_lowercase()).into()))
        .chain([Cow::Borrowed("*")])
}

impl ServedSite {
    /// Whether one of its certificates exists.
    pub fn is_certified(&self) -> bool {
        !self.contexts.is_empty()
    }

    /// Gives the handshake the first certificate that its client can verify and that would be signed for in time. If
    /// the client can verify none, it gets the last one. `false`: none would be signed for in time.
    pub fn select_certificate(&self, hello: &mut ClientHello<'_>) -> Result<bool, ErrorStack> {
        let mut suiting = self
            .contexts
            .iter()
            .filter(|context| context.suits(hello))
            .peekable();
        let last = suiting
            .peek()
            .is_none()
            .then(|| self.contexts.last())
            .flatten();
        let mut all = suiting.chain(last);
        let Some(context) = all.find(|context| !context.is_late(hello)) else {
            return Ok(false);
        };
        let lists = self.revocation.as_ref();
        context.apply(hello.ssl_mut(), self.site.clients.as_ref(), lists)?;
        Ok(true)
    }
}

fn warn_of_absence(site: &str, file: &Path) {
    tracing::warn!(
        "THE CERTIFICATE {} IS NOT THERE: the site {site} is not served by it until an ACME client has brought it",
        file.display()
    );
}

/// The algorithms of a key of the pool.
fn of_holders(ec: bool, key: &ObjectId, catalogue: &Catalogue) -> Ability {
    Ability::of(ec, |mechanism| catalogue.can(key, mechanism))
}

/// All files that the sites are made from.
pub fn files(section: &GatewaySection) -> impl Iterator<Item = &Path> {
    section.sites.iter().flat_map(|site| {
        let certificates = site.certificates.iter().flat_map(of_certificate);
        let clients = site.clients.iter().flat_map(|clients| {
            let roots = std::iter::once(&clients.roots);
            roots.chain(&clients.lists).map(|file| &**file)
        });
        certificates.chain(clients).chain(site.backends.roots())
    })
}

fn of_certificate(certificate: &Certificate) -> impl Iterator<Item = &Path> {
    let sources = [Some(&certificate.chain), certificate.key.as_ref()];
    let files = sources
        .into_iter()
        .flatten()
        .filter_map(|source| match source {
            ObjectSource::File(file) => Some(&**file),
            ObjectSource::Pool(_) => None,
        });
    files.chain(certificate.ocsp.as_deref())
}
