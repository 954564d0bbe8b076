//! Search of a reference's URI among the pool's objects.

use std::path::Path;

use hsmux_config::PinSource;
use hsmux_software::PublicKey;
use hsmux_token::{Class, Error, KeyKind, Kind, Object, Result, Secret, TokenFlags, Uri, ck};
use hsmux_wire::View;

use crate::slot::SLOT;

/// The private key that a URI means.
pub fn one<'v>(view: &'v View, uri: &Uri) -> Result<&'v Object> {
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
        (None, _) => return Err(unknown(format!("{uri}: no such private key in the pool"))),
    };
    if key.attributes.flag(ck::CKA_ALWAYS_AUTHENTICATE) == Some(true) {
        let message =
            format!("{uri}: this key asks for a PIN each time, and nobody is there to give it");
        return Err(Error::request(Kind::Unsupported, message));
    }
    Ok(key)
}

/// The public half of the private key that a URI means; one on a curve need not tell it.
pub fn public(view: &View, private: &Object, uri: &Uri) -> Result<PublicKey> {
    let id = private.id.with_class(Class::PUBLIC_KEY);
    let other = view.objects.iter().find(|object| object.id == id);
    let halves = [Some(private), other].into_iter().flatten();
    let mut known = halves.filter_map(|half| PublicKey::from_attributes(&half.attributes).ok());
    let fits = |key: &PublicKey| match key.kind() {
        KeyKind::Rsa => true,
        KeyKind::Ec => key.curve().is_ok(),
        _ => false,
    };
    known.find(fits).ok_or_else(|| {
        let message = format!(
            "{uri}: neither RSA nor ECDSA on a known curve, or its public key is not in the pool \
             beside it"
        );
        Error::request(Kind::Unsupported, message)
    })
}

/// The PIN that shows private keys: the URI's, or any where the user is enough, who still has to log in (PKCS#11 3.0,
/// section 5.6.8).
pub fn pin(uri: &Uri, view: &View) -> Result<Secret> {
    let by_user = TokenFlags::PROTECTED_AUTHENTICATION_PATH;
    match &uri.pin_source {
        Some(source) => from_file(source),
        None if view.info.flags.contains(by_user) => Ok(Secret::default()),
        None => Err(Error::request(
            Kind::NotLoggedIn,
            format!(
                "{uri}: no private key is shown without a login: say login = \"peer\" for the listener, \
                 or end the URI with ?pin-source=file:..."
            ),
        )),
    }
}

/// RFC 7512, section 2.4: a file's name, alone or in a file URI.
fn from_file(source: &str) -> Result<Secret> {
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
