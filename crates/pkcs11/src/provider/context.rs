//! The way to the pool: for each process its own, for a fork's child makes another when it is first needed.

use std::path::Path;
use std::sync::Arc;

use hsmux_pool::config::PinSource;
use hsmux_software::PublicKey;
use hsmux_token::sync::Mutex;
use hsmux_token::{Class, Error, KeyKind, Kind, Object, Result, Secret, TokenFlags, Uri, ck};
use hsmux_wire::View;

use super::key::{Key, Private};
use crate::backend::Backend;
use crate::mechanisms::Mechanisms;
use crate::place::Place;
use crate::setup::{self, Source};
use crate::slot::SLOT;

/// What one activation of the provider knows.
pub struct Context {
    source: Source,
    line: Place<Line>,
}

/// A process's backend.
struct Line {
    backend: Box<dyn Backend>,
    logged_in: Mutex<bool>,
}

impl Context {
    /// The pool at its source; nothing is read or connected to before it is needed.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            line: Place::empty(),
        }
    }

    /// Runs a call on the backend of this process; with a PIN it has logged in.
    pub fn with<T>(
        &self,
        pin: Option<&Secret>,
        call: impl FnOnce(&dyn Backend) -> Result<T>,
    ) -> Result<T> {
        loop {
            if let Some(line) = &*self.line.get() {
                if let Some(pin) = pin {
                    line.login(pin)?;
                }
                return call(&*line.backend);
            }
            self.line.put(|| Line::new(&self.source))?;
        }
    }

    /// The key that a URI names.
    pub fn find(self: &Arc<Self>, uri: &Uri) -> Result<Key> {
        let pin = match &uri.pin_source {
            Some(source) => Some(pin(source)?),
            None => self.pin_for_nothing()?,
        };
        let view = self.view(pin.as_ref())?;
        let found = one(&view, uri)?;
        let public = public(&view, found)?;
        let offered = Mechanisms::new(&view.info);
        let private = Private::new(Arc::clone(self), found.clone(), offered, pin);
        Ok(Key {
            public,
            private: Some(private),
        })
    }
}

impl Context {
    /// Who is let in by his user still has to log in, with any PIN (PKCS#11 3.0, section 5.6.8).
    fn pin_for_nothing(&self) -> Result<Option<Secret>> {
        let flags = self.view(None)?.info.flags;
        let none = flags.contains(TokenFlags::PROTECTED_AUTHENTICATION_PATH);
        Ok(none.then(Secret::default))
    }

    fn view(&self, pin: Option<&Secret>) -> Result<View> {
        let view = self.with(pin, |backend| backend.view(0))?;
        view.ok_or_else(|| Error::protocol("no catalogue, where all is new"))
    }
}

impl Line {
    fn new(source: &Source) -> Result<Self> {
        Ok(Self {
            backend: setup::backend(source, true)?,
            logged_in: Mutex::default(),
        })
    }

    /// Once: a daemon that comes back is told again by the backend.
    fn login(&self, pin: &Secret) -> Result<()> {
        let mut logged_in = self.logged_in.lock();
        if !*logged_in {
            self.backend.login(pin.clone())?;
            *logged_in = true;
        }
        Ok(())
    }
}

fn one<'v>(view: &'v View, uri: &Uri) -> Result<&'v Object> {
    if !uri.matches_token(&view.info, Some(SLOT)) {
        let label = &view.info.label;
        return Err(unknown(format!(
            "{uri}: the pool is another token, {label:?}"
        )));
    }
    let is = |object: &&Object| object.id.class == Class::PRIVATE_KEY && uri.matches_object(object);
    let mut found = view.objects.iter().filter(is);
    let key = match (found.next(), found.next()) {
        (Some(key), None) => key,
        (Some(_), Some(_)) => {
            let message = format!("{uri}: several private keys match; add ;id=");
            return Err(Error::request(Kind::Invalid, message));
        }
        (None, _) if view.logged_in => {
            return Err(unknown(format!("{uri}: no such private key in the pool")));
        }
        (None, _) => {
            return Err(unknown(format!(
                "{uri}: no private key is shown without a login; say login = \"peer\" for the listener, \
                 or end the URI with ?pin-source=file:..."
            )));
        }
    };
    if key.attributes.flag(ck::CKA_ALWAYS_AUTHENTICATE) == Some(true) {
        let message =
            format!("{uri}: this key asks for a PIN each time, and nobody is there to give it");
        return Err(Error::request(Kind::Unsupported, message));
    }
    Ok(key)
}

/// The public half, which a private key on a curve need not tell.
fn public(view: &View, private: &Object) -> Result<PublicKey> {
    let id = private.id.with_class(Class::PUBLIC_KEY);
    let other = view.objects.iter().find(|object| object.id == id);
    let halves = [Some(private), other].into_iter().flatten();
    let mut known = halves.filter_map(|half| PublicKey::from_attributes(&half.attributes).ok());
    let fits = |key: &PublicKey| matches!(key.kind(), KeyKind::Rsa | KeyKind::Ec);
    known.find(fits).ok_or_else(|| {
        let message =
            "the key is none of RSA or of a known curve, or its public key is not in the pool";
        Error::request(Kind::Unsupported, message)
    })
}

/// RFC 7512, section 2.4: a file's name, alone or in a file URI.
fn pin(source: &str) -> Result<Secret> {
    let path = source.strip_prefix("file:").unwrap_or(source);
    let path = path.strip_prefix("//").unwrap_or(path);
    if !path.starts_with('/') {
        let message = format!("pin-source {source:?} is not like file:/etc/hsmux/web.pin");
        return Err(Error::request(Kind::Invalid, message));
    }
    PinSource::File(Path::new(path).to_owned()).read()
}

fn unknown(message: String) -> Error {
    Error::request(Kind::UnknownObject, message)
}
