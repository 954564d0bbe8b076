//! The catalogue as an application may see it.

use std::sync::Arc;

use hsmux_config::Login;
use hsmux_pool::Catalogue;
use hsmux_token::{Object, TokenFlags};
use hsmux_wire::View;
use parking_lot::Mutex;

use crate::settings::{Clients, Settings, is_private};

/// The newest view for each state of login, made once for each epoch.
#[derive(Default)]
pub struct Views([Mutex<Option<Sized>>; 2]);

/// A view, and its size in bytes.
type Sized = (Arc<View>, usize);

/// The epoch as an application sees it. It differs after C_Login and after a change of the listener's rights, and is
/// never 0.
pub fn epoch(catalogue: &Catalogue, settings: &Settings, logged_in: bool) -> u64 {
    // Other hosts also have to learn that a token of this host has a key.
    let epoch = if settings.clients.is_pool() {
        catalogue.edition()
    } else {
        catalogue.epoch
    };
    settings.edition << 48 | (epoch + 1) << 1 | u64::from(logged_in)
}

impl Views {
    /// The current view, and its size in bytes.
    pub fn get(&self, catalogue: &Catalogue, settings: &Settings, logged_in: bool) -> Sized {
        let epoch = epoch(catalogue, settings, logged_in);
        let mut newest = self.0[usize::from(logged_in)].lock();
        match &*newest {
            Some((view, bytes)) if view.epoch == epoch => (Arc::clone(view), *bytes),
            _ => {
                let view = Arc::new(view(catalogue, settings, logged_in));
                let bytes = view.objects.iter().map(Object::bytes).sum();
                *newest = Some((Arc::clone(&view), bytes));
                (view, bytes)
            }
        }
    }
}

fn view(catalogue: &Catalogue, settings: &Settings, logged_in: bool) -> View {
    let info = if settings.clients == Clients::Host {
        &catalogue.own
    } else {
        &catalogue.info
    };
    let mut info = hsmux_token::TokenInfo::clone(info);
    let listener = &settings.listener;
    info.flags.set(TokenFlags::LOGIN_REQUIRED, true);
    info.flags.set(TokenFlags::USER_PIN_INITIALIZED, true);
    if listener.read_only {
        info.flags |= TokenFlags::WRITE_PROTECTED;
    }
    // With it, programs call C_Login without asking for a PIN (PKCS#11 3.0, section 5.6.8).
    info.flags.set(
        TokenFlags::PROTECTED_AUTHENTICATION_PATH,
        listener.login == Login::Peer,
    );
    let shown = |object: &Object| {
        let entry = catalogue.get(&object.id)?;
        let seen = settings.offers(catalogue, entry) && (logged_in || !is_private(object));
        seen.then(|| match settings.clients {
            Clients::Gateway | Clients::Broker => catalogue.with_inability(entry),
            Clients::Programs | Clients::Host => object.clone(),
        })
    };
    View {
        epoch: epoch(catalogue, settings, logged_in),
        info,
        objects: catalogue
            .snapshot()
            .objects
            .iter()
            .filter_map(shown)
            .collect(),
        logged_in,
    }
}
