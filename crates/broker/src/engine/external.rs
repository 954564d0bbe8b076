//! Keys that others have made: by `pkcs11:` URI, `label:`, or `id:` in hexadecimal digits.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use hsmux_pool::Catalogue;
use hsmux_token::{Class, KeyKind, Object, ObjectId, Result, Uri, ck};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::{Budget, Engine};
use crate::key::{KeyName, Mark, Shape};
use crate::refusal::Refusal;

/// A key that others have made.
#[derive(Clone, Debug)]
pub struct External {
    /// The secret or private key.
    pub object: ObjectId,
    /// What can be done with it.
    pub shape: Shape,
}

/// The keys of the catalogue by label and by id. Made anew where the catalogue has changed and a name
/// is not found in it: a name that is found costs one look, however many keys there are.
#[derive(Default)]
pub struct Index {
    names: ArcSwap<Names>,
    budgets: Mutex<HashMap<ObjectId, Arc<Budget>>>,
}

#[derive(Default)]
struct Names {
    epoch: u64,
    labels: HashMap<Vec<u8>, Vec<ObjectId>>,
    ids: HashMap<Vec<u8>, Vec<ObjectId>>,
}

/// How a request names a key that others have made.
enum Asked {
    Label(Vec<u8>),
    Id(Vec<u8>),
}

/// Bytes of a name on the trail.
const LONGEST: usize = 200;

/// Whether a name is of a key that others have made: managed names have no `:`.
pub fn is_external(name: &str) -> bool {
    name.contains(':')
}

/// A name as a client has written it, for the trail: of a URI what names a key, and nothing else of it, for people write
/// PINs there; a hash of what is no name of a key, or too long for one.
pub fn spelling(name: &str) -> String {
    let managed = name.is_empty() || name.parse::<KeyName>().is_ok();
    let kept = if managed {
        Some(name.to_owned())
    } else if name.starts_with("label:") || name.starts_with("id:") {
        name.split('?').next().map(str::to_owned)
    } else {
        name.parse::<Uri>().ok().map(|uri| {
            let (object, id, class) = (uri.object, uri.id, uri.class);
            let names = Uri {
                object,
                id,
                class,
                ..Uri::default()
            };
            names.to_string()
        })
    };
    kept.filter(|kept| kept.len() <= LONGEST)
        .unwrap_or_else(|| {
            let hash = Sha256::digest(name.as_bytes());
            format!("name:{}", hex::encode(&hash[..8]))
        })
}

impl Engine {
    /// The one key that a request means.
    pub fn external(&self, name: &str) -> Result<External, Refusal> {
        let (asked, uri) = asked(name)?;
        let catalogue = self.pool.catalogue();
        let mut names = self.external.names.load_full();
        let mut found = names.find(&catalogue, &asked, &uri);
        if found.is_empty() && names.epoch != catalogue.epoch {
            names = self.refresh_names(&catalogue);
            found = names.find(&catalogue, &asked, &uri);
        }
        let [object] = &found[..] else {
            return Err(match found.len() {
                0 => Refusal::no_key(),
                many => Refusal::bad(format!("{many} keys match {name}: name one by id and type")),
            });
        };
        Ok(External {
            object: object.id,
            shape: shape(object)?,
        })
    }

    /// Makes the index anew where the catalogue has changed.
    pub fn refresh_external(&self) {
        let catalogue = self.pool.catalogue();
        if self.external.names.load().epoch != catalogue.epoch {
            self.refresh_names(&catalogue);
        }
    }

    /// The budget of a GCM key that others have made. Their own uses of it are not in it; of ours before the store
    /// was lost nobody knows, so that it only deciphers.
    pub async fn external_budget(&self, object: ObjectId) -> Result<Arc<Budget>, Refusal> {
        if let Some(known) = self.external.budgets.lock().get(&object) {
            return Ok(Arc::clone(known));
        }
        let loaded = self
            .store
            .run(move |store| {
                if store.forgets(&object)? {
                    store.exhaust(&object)?;
                }
                Budget::load(store, object)
            })
            .await?;
        let mut budgets = self.external.budgets.lock();
        Ok(Arc::clone(
            budgets.entry(object).or_insert(Arc::new(loaded)),
        ))
    }

    fn refresh_names(&self, catalogue: &Catalogue) -> Arc<Names> {
        let names = Arc::new(Names::of(catalogue));
        self.external.names.store(Arc::clone(&names));
        names
    }
}

impl Names {
    fn of(catalogue: &Catalogue) -> Self {
        let mut names = Self {
            epoch: catalogue.epoch,
            ..Self::default()
        };
        let visible = catalogue.entries.values().filter(|entry| entry.visible());
        for object in visible.map(|entry| &entry.object) {
            let usable = matches!(object.id.class, Class::SECRET_KEY | Class::PRIVATE_KEY);
            // By its own name alone, for its settings hold there.
            if !usable || Mark::of(object).is_some() {
                continue;
            }
            let of = |kind| object.attributes.get(kind).unwrap_or_default().to_vec();
            names
                .labels
                .entry(of(ck::CKA_LABEL))
                .or_default()
                .push(object.id);
            names.ids.entry(of(ck::CKA_ID)).or_default().push(object.id);
        }
        names
    }

    fn find(&self, catalogue: &Catalogue, asked: &Asked, uri: &Uri) -> Vec<Arc<Object>> {
        let found = match asked {
            Asked::Label(label) => self.labels.get(label),
            Asked::Id(id) => self.ids.get(id),
        };
        let ids = found.map_or(&[][..], Vec::as_slice).iter();
        let objects = ids.filter_map(|id| Some(Arc::clone(&catalogue.get(id)?.object)));
        objects
            .filter(|object| uri.matches_object(object))
            .collect()
    }
}

fn asked(name: &str) -> Result<(Asked, Uri), Refusal> {
    if let Some(label) = name.strip_prefix("label:") {
        return Ok((Asked::Label(label.into()), Uri::default()));
    }
    if let Some(id) = name.strip_prefix("id:") {
        let id = hex::decode(id).map_err(|e| Refusal::bad(format!("{name}: {e}")))?;
        return Ok((Asked::Id(id), Uri::default()));
    }
    let uri: Uri = name
        .parse()
        .map_err(|e: hsmux_token::UriError| Refusal::bad(e.to_string()))?;
    if uri.names_token() {
        return Err(Refusal::bad(
            "the pool is one token: a key is named by object, id and type",
        ));
    }
    let asked = match (&uri.id, &uri.object) {
        (Some(id), _) => Asked::Id(id.clone()),
        (None, Some(label)) => Asked::Label(label.clone().into_bytes()),
        (None, None) => {
            return Err(Refusal::bad(format!(
                "{name} names no key: give object or id"
            )));
        }
    };
    // A name of a public half means the private one.
    let class = uri.class.filter(|class| *class != Class::PUBLIC_KEY);
    Ok((asked, Uri { class, ..uri }))
}

fn shape(object: &Object) -> Result<Shape, Refusal> {
    let key_type = object
        .attributes
        .number(ck::CKA_KEY_TYPE)
        .unwrap_or(u64::MAX);
    let public = || hsmux_software::PublicKey::from_attributes(&object.attributes);
    Ok(match KeyKind::of(key_type) {
        KeyKind::Aes => Shape::AesGcm {
            bits: object.attributes.number(ck::CKA_VALUE_LEN).unwrap_or(0) * 8,
        },
        KeyKind::Rsa => Shape::Rsa {
            bits: public()?.bits() as u64,
        },
        KeyKind::Ec => Shape::Ecdsa(match public()?.bits() {
            ..=256 => "p256",
            257..=384 => "p384",
            _ => "p521",
        }),
        KeyKind::Edwards => Shape::Ed25519,
        KeyKind::Generic => Shape::Hmac,
        other => {
            let message = format!("the broker does nothing with keys of the kind {other:?}");
            return Err(Refusal::bad(message));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_name_what_names_a_key_is_kept() {
        for (name, kept) in [
            ("", ""),
            ("orders-1", "orders-1"),
            ("label:web", "label:web"),
            ("label:web?pin-value=1234", "label:web"),
            ("id:0102", "id:0102"),
            (
                "pkcs11:id=%01;object=web;type=private;token=t?pin-source=file:/pin",
                "pkcs11:object=web;type=private;id=%01",
            ),
        ] {
            assert_eq!(spelling(name), kept, "{name}");
        }
        let long = "x".repeat(LONGEST + 1);
        let label = format!("label:{long}");
        for name in ["pkcs11:object=web?pin-value=1234", "a b", &long, &label] {
            let kept = spelling(name);
            assert!(kept.starts_with("name:") && kept.len() == 21, "{kept}");
        }
        assert_ne!(spelling("a b"), spelling("a c"));
    }
}
