//! Keys of other programs: found by name in the catalogue, with the broker's budgets for them.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use hsmux_pool::Catalogue;
use hsmux_software::PublicKey;
use hsmux_token::{Class, KeyKind, Object, ObjectId, Result, Uri, ck};
use parking_lot::Mutex;

use super::external_name::{KeyLookup, key_lookup};
use super::{Budget, Engine};
use crate::key::{KeyMark, Shape};
use crate::refusal::Refusal;

/// A key that others have made.
#[derive(Clone, Debug)]
pub struct ExternalKey {
    /// The secret or private key.
    pub object: ObjectId,
    /// The algorithm, and so what the key can do.
    pub shape: Shape,
}

/// The keys of the catalogue by label and by id. The index is rebuilt if the catalogue has changed and a name is not
/// in it. A name that is in it costs one lookup.
#[derive(Default)]
pub struct ExternalKeys {
    names: ArcSwap<NameIndex>,
    budgets: Mutex<HashMap<ObjectId, Arc<Budget>>>,
}

#[derive(Default)]
struct NameIndex {
    epoch: u64,
    labels: HashMap<Vec<u8>, Vec<ObjectId>>,
    ids: HashMap<Vec<u8>, Vec<ObjectId>>,
}

impl Engine {
    /// The one key that a request names.
    pub fn external(&self, name: &str) -> Result<ExternalKey, Refusal> {
        let (asked, uri) = key_lookup(name)?;
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
        Ok(ExternalKey {
            object: object.id,
            shape: shape(object)?,
        })
    }

    /// Rebuilds the index if the catalogue has changed.
    pub fn refresh_external(&self) {
        let catalogue = self.pool.catalogue();
        if self.external.names.load().epoch != catalogue.epoch {
            self.refresh_names(&catalogue);
        }
    }

    /// The budget of a GCM key that another program has made. It does not count that program's uses. If the store was
    /// lost, the broker's own earlier uses are unknown, and the key only deciphers.
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

    fn refresh_names(&self, catalogue: &Catalogue) -> Arc<NameIndex> {
        let names = Arc::new(NameIndex::of(catalogue));
        self.external.names.store(Arc::clone(&names));
        // Keys come and go; a key that returns loses the rest of its last block.
        let is_there = |object: &ObjectId| catalogue.get(object).is_some();
        self.external.forget_but(is_there);
        self.rejection.forget_but(is_there);
        names
    }
}

impl ExternalKeys {
    /// Drops budgets of keys that are gone.
    fn forget_but(&self, is_there: impl Fn(&ObjectId) -> bool) {
        self.budgets.lock().retain(|key, _| is_there(key));
    }
}

impl NameIndex {
    fn of(catalogue: &Catalogue) -> Self {
        let mut names = Self {
            epoch: catalogue.epoch,
            ..Self::default()
        };
        let visible = catalogue.entries.values().filter(|entry| entry.visible());
        for object in visible.map(|entry| &entry.object) {
            let usable = matches!(object.id.class, Class::SECRET_KEY | Class::PRIVATE_KEY);
            // Only by its managed name: the owner's settings apply there.
            if !usable || KeyMark::of(object).is_some() {
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

    fn find(&self, catalogue: &Catalogue, asked: &KeyLookup, uri: &Uri) -> Vec<Arc<Object>> {
        let found = match asked {
            KeyLookup::Label(label) => self.labels.get(label),
            KeyLookup::Id(id) => self.ids.get(id),
        };
        let ids = found.map_or(&[][..], Vec::as_slice).iter();
        let objects = ids.filter_map(|id| Some(Arc::clone(&catalogue.get(id)?.object)));
        objects
            .filter(|object| uri.matches_object(object))
            .collect()
    }
}

fn shape(object: &Object) -> Result<Shape, Refusal> {
    let key_type = object
        .attributes
        .number(ck::CKA_KEY_TYPE)
        .unwrap_or(u64::MAX);
    let public = || PublicKey::from_attributes(&object.attributes);
    Ok(match KeyKind::of(key_type) {
        KeyKind::Aes => Shape::AesGcm {
            bits: object.attributes.number(ck::CKA_VALUE_LEN).unwrap_or(0) * 8,
        },
        KeyKind::Rsa => Shape::Rsa {
            bits: public()?.bits() as u64,
        },
        KeyKind::Ec | KeyKind::Edwards => on_curve(&public()?)?,
        KeyKind::Generic => Shape::Hmac,
        other => {
            let message = format!("the broker does nothing with keys of the kind {other:?}");
            return Err(Refusal::bad(message));
        }
    })
}

/// By the name of the curve, not by its length: secp256k1 is as long as P-256.
fn on_curve(public: &PublicKey) -> Result<Shape, Refusal> {
    Ok(match public.curve()? {
        "P-256" => Shape::Ecdsa("p256"),
        "P-384" => Shape::Ecdsa("p384"),
        "P-521" => Shape::Ecdsa("p521"),
        "Ed25519" => Shape::Ed25519,
        "Ed448" => {
            let message = "the broker does nothing with keys on Ed448; make one on Ed25519";
            return Err(Refusal::bad(message));
        }
        // The dialect has no word for this curve; its signatures work as others do.
        other => Shape::Ecdsa(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use hsmux_token::Attributes;

    /// The algorithm of a key with these CKA_EC_PARAMS and this point, both in hexadecimal digits.
    fn elliptic(key_type: u64, params: &str, point: &str) -> Result<String, Refusal> {
        let bytes = |text: &str| hex::decode(text).unwrap();
        let attributes = Attributes::default()
            .with_number(ck::CKA_KEY_TYPE, key_type)
            .with(ck::CKA_EC_PARAMS, bytes(params))
            .with(ck::CKA_EC_POINT, bytes(point));
        let id = ObjectId {
            class: Class::PRIVATE_KEY,
            name: [0; 32],
        };
        shape(&Object { id, attributes }).map(Shape::word)
    }

    /// The points are the curves' generators (SP 800-186, SEC 2, RFC 5639), if their arithmetic is known.
    #[test]
    fn a_curve_is_what_it_is_called_whatever_its_length() {
        let somewhere = format!("04{}", "5a".repeat(128));
        for (params, point, word) in [
            (
                "06082a8648ce3d030107",
                "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296\
                 4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5",
                "ecdsa-p256",
            ),
            (
                "06052b8104000a",
                "0479be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798\
                 483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8",
                "ecdsa-secp256k1",
            ),
            (
                "06092b2403030208010107",
                "048bd2aeb9cb7e57cb2c4b482ffc81b7afb9de27e1e3bd23c23a4453bd9ace3262\
                 547ef835c3dac4fd97f8461a14611dc9c27745132ded8e545c1d54c72f046997",
                "ecdsa-brainpoolP256r1",
            ),
            (
                "06092b240303020801010d",
                &somewhere[..],
                "ecdsa-brainpoolP512r1",
            ),
        ] {
            assert_eq!(elliptic(ck::CKK_EC, params, point).unwrap(), word);
        }
        let own = ["p256", "p384", "p521"].map(|name| Shape::Ecdsa(name).curve_word());
        assert_eq!(own, ["P-256", "P-384", "P-521"].map(Some));
        assert_eq!(Shape::Ecdsa("secp256k1").curve_word(), Some("secp256k1"));
    }

    #[test]
    fn a_curve_with_which_nothing_is_done_is_named() {
        let point = format!("04{}", "5a".repeat(42));
        for (key_type, params, name) in [
            // sect163k1
            (ck::CKK_EC, "06052b81040001", "1.3.132.0.1"),
            (ck::CKK_EC_EDWARDS, "06032b6571", "Ed448"),
        ] {
            let refused = elliptic(key_type, params, &point).unwrap_err();
            assert_eq!(refused.status.as_u16(), 400);
            assert!(refused.text().contains(name), "{refused:?}");
        }
    }

    #[test]
    fn no_budget_is_kept_of_a_key_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("broker.sqlite")).unwrap();
        let [stays, gone] = [1, 2].map(|byte| ObjectId {
            class: Class::SECRET_KEY,
            name: [byte; 32],
        });
        let index = ExternalKeys::default();
        for key in [stays, gone] {
            let budget = Budget::load(&store, key).unwrap();
            index.budgets.lock().insert(key, Arc::new(budget));
        }
        index.forget_but(|key| *key == stays);
        let left: Vec<_> = index.budgets.lock().keys().copied().collect();
        assert_eq!(left, [stays]);
    }
}
