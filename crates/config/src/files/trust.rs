//! Files that decide who is trusted: who can change them can let anybody in.

use std::path::Path;

use hsmux_token::permissions::TrustedOwner;

use super::Findings;
use crate::reader::ExternalReference;
use crate::{Config, Mistake};

/// Finds the files that decide who is trusted, and that other users can change. A daemon does not start with them.
pub fn untrusted_files(config: &Config) -> Vec<Mistake> {
    let mut found = Findings::none(config);
    for (line, named) in &config.external_references.0 {
        if let Some((service, file)) = trusted(named) {
            found.untrusted(*line, service, file);
        }
    }
    found.in_order()
}

fn trusted(named: &ExternalReference) -> Option<(&'static str, &Path)> {
    match named {
        ExternalReference::Trust(service, file) => Some((service, file)),
        ExternalReference::OfSite(named) | ExternalReference::Beside(named, _) => trusted(named),
        _ => None,
    }
}

/// Services that have a user of their own, by their sections.
pub(super) fn services(config: &Config) -> Vec<(&'static str, u32)> {
    let gateway = config.gateway.as_ref().and_then(|it| it.user.as_ref());
    let broker = config.broker.as_ref().and_then(|it| it.user.as_ref());
    let node = config.node.as_ref().and_then(|it| it.user.as_ref());
    let users = [("gateway", gateway), ("broker", broker), ("node", node)];
    let users = users.into_iter();
    users
        .filter_map(|(name, user)| Some((name, user?.id()?)))
        .collect()
}

impl Findings<'_> {
    pub(super) fn trust(&mut self, line: usize, service: &str, file: &Path) {
        if !self.untrusted(line, service, file) {
            self.file(line, file);
        }
    }

    /// True, with an error, if other users can change this file, or make it: others than root, the daemon's user and
    /// the one of the service.
    pub(super) fn untrusted(&mut self, line: usize, service: &str, file: &Path) -> bool {
        let of_service = self.services.iter().filter(|(name, _)| *name == service);
        let others = self
            .others
            .into_iter()
            .chain(of_service.map(|(_, user)| *user));
        let mut is_refused = |user: u32| {
            let refused = TrustedOwner::RootOr(user).verify_or_absent(file).err();
            refused.is_some_and(|error| error.raw_os_error().is_none())
        };
        let own = TrustedOwner::RootOrSelf.verify_or_absent(file).err();
        let own = own.filter(|error| error.raw_os_error().is_none());
        let refused = own.filter(|_| others.into_iter().all(&mut is_refused));
        if let Some(error) = &refused {
            self.error(line, error.to_string());
        }
        refused.is_some()
    }
}
