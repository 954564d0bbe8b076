//! Objects of the catalogue by URI.

use std::sync::Arc;

use hsmux_pool::{Catalogue, Entry};
use hsmux_token::{Class, Error, Kind, Object, Result, Uri, ck};

/// Reads a URI that names objects.
pub fn uri(text: &str) -> Result<Uri> {
    let uri: Uri = text
        .parse()
        .map_err(|e: hsmux_token::UriError| Error::request(Kind::Invalid, e.to_string()))?;
    if uri.names_object() {
        return Ok(uri);
    }
    let message = format!("{text} names no object; write object=, id= or type=");
    Err(Error::request(Kind::Invalid, message))
}

/// The private and secret keys that have this label.
pub fn keys_with_label(catalogue: &Catalogue, label: &str) -> Vec<Arc<Entry>> {
    let has_label = |object: &Object| {
        let is_key = [Class::PRIVATE_KEY, Class::SECRET_KEY].contains(&object.id.class);
        is_key && object.attributes.get(ck::CKA_LABEL) == Some(label.as_bytes())
    };
    let entries = catalogue.entries.values();
    let found = entries.filter(|entry| !entry.hidden && has_label(&entry.object));
    let mut found: Vec<_> = found.cloned().collect();
    found.sort_by_key(|entry| entry.object.id);
    found
}

/// Class, label and CKA_ID of an object, as commands list and take them.
pub fn named(object: &Object) -> String {
    let attributes = &object.attributes;
    let label = attributes.text(ck::CKA_LABEL).unwrap_or_default();
    let id = attributes.get(ck::CKA_ID).filter(|id| !id.is_empty());
    let id = id.map_or_else(|| "none".to_owned(), hex::encode);
    format!("{} {label:?}, id {id}", object.id.class.name())
}

/// All objects that a URI means, the private keys first; none is an error.
pub fn entries(catalogue: &Catalogue, uri: &Uri) -> Result<Vec<Arc<Entry>>> {
    let mut found: Vec<_> = catalogue
        .entries
        .values()
        .filter(|entry| !entry.hidden && uri.matches_object(&entry.object))
        .cloned()
        .collect();
    found.sort_by_key(|entry| (order(entry.object.id.class), entry.object.id));
    if found.is_empty() {
        let message = format!("{uri}: no such object in the pool; hsmux key list shows all");
        return Err(Error::request(Kind::UnknownObject, message));
    }
    Ok(found)
}

/// The one object of a class that a URI means.
pub fn one(catalogue: &Catalogue, uri: &Uri, class: Class) -> Result<Arc<Object>> {
    let all = entries(catalogue, uri)?;
    let mut keys = all.iter().filter(|entry| entry.object.id.class == class);
    let name = class.name();
    match (keys.next(), keys.next()) {
        (Some(entry), None) => Ok(Arc::clone(&entry.object)),
        (None, _) => {
            let message =
                format!("{uri}: no {name} among the objects that match; hsmux key list shows all");
            Err(Error::request(Kind::UnknownObject, message))
        }
        (Some(one), Some(two)) => {
            let message = format!(
                "{uri}: several {name}s match: {}, {}{}; name one by --id and --label together, as hsmux key list shows them",
                shown(&one.object),
                shown(&two.object),
                if keys.next().is_some() {
                    " and others"
                } else {
                    ""
                }
            );
            Err(Error::request(Kind::Invalid, message))
        }
    }
}

fn shown(object: &Object) -> String {
    let label = object.attributes.text(ck::CKA_LABEL).unwrap_or_default();
    let id = object.attributes.get(ck::CKA_ID).unwrap_or_default();
    format!("{label:?} (id {})", hex::encode(id))
}

/// People look for keys first.
pub fn order(class: Class) -> u8 {
    match class {
        Class::PRIVATE_KEY => 0,
        Class::SECRET_KEY => 1,
        Class::PUBLIC_KEY => 2,
        Class::CERTIFICATE => 3,
        _ => 4,
    }
}
