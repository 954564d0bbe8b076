//! Whether an application may do what it asks: looked at once, before the pool sees it.

use std::sync::Arc;

use hsmux_pool::{Catalogue, HIDDEN_LABEL, has_broker_mark};
use hsmux_software::PublicKey;
use hsmux_token::{
    Attributes, Class, Error, Kind, Object, ObjectId, ObjectRef, Operation, Result, SessionObject,
    Verb, ck,
};

use crate::broker_keys;
use crate::settings::{Clients, Settings, is_private};

/// Larger keys keep a software token busy for minutes, each of which anybody could ask for.
const MOST_BITS_WITHOUT_LOGIN: u64 = 4096;

/// All that decides about one request.
pub struct Rights<'a> {
    /// The listener's.
    pub settings: &'a Settings,
    /// What there is.
    pub catalogue: &'a Catalogue,
    /// True if the application has logged in.
    pub logged_in: bool,
}

impl Rights<'_> {
    /// Checks that the operation may run. `owned` answers the lasting attributes of the application's session objects.
    pub fn check(
        &self,
        operation: &Operation,
        owned: impl Fn(&SessionObject) -> Option<Arc<Object>>,
    ) -> Result<()> {
        // First of all, for the rest believes what it reads in a template.
        operation.check()?;
        if self.settings.listener.read_only && operation.changes_token() {
            let why = "this listener is read-only; session objects are allowed";
            return Err(refused(operation, Kind::ReadOnly, why));
        }
        if self.settings.clients == Clients::Host && operation.exports() {
            let why = "another host takes no key out of a token";
            return Err(refused(operation, Kind::Forbidden, why));
        }
        let makes_or_destroys = matches!(
            operation,
            Operation::Generate { .. } | Operation::GeneratePair { .. } | Operation::Destroy { .. }
        );
        if self.settings.clients == Clients::Broker
            && operation.changes_token()
            && !makes_or_destroys
        {
            let why = "the broker makes keys and destroys them, and changes nothing else";
            return Err(refused(operation, Kind::Forbidden, why));
        }
        if self.settings.clients == Clients::Broker && operation.exports() {
            let why = "the broker takes no key out of a token";
            return Err(refused(operation, Kind::Forbidden, why));
        }
        if self.settings.clients == Clients::Gateway && !is_signature(operation) {
            let why = "the gateway signs, and does nothing else";
            return Err(refused(operation, Kind::Forbidden, why));
        }
        let is_large = |bits| bits > MOST_BITS_WITHOUT_LOGIN;
        if !self.logged_in && operation.new_key_bits().is_some_and(is_large) {
            let why = format!(
                "without a login a new key has at most {MOST_BITS_WITHOUT_LOGIN} bits: C_Login first"
            );
            return Err(refused(operation, Kind::NotLoggedIn, &why));
        }
        for object in operation.objects() {
            match object {
                ObjectRef::Token(id) => self.may_use(operation, id)?,
                ObjectRef::Session(session) if owned(session).is_some() => {}
                ObjectRef::Session(_) => {
                    let why = "no such session object of this application";
                    return Err(refused(operation, Kind::UnknownObject, why));
                }
            }
        }
        let before = changed(operation).and_then(|object| match object {
            ObjectRef::Token(id) => Some(Arc::clone(&self.catalogue.get(id)?.object)),
            ObjectRef::Session(session) => owned(session),
        });
        let templates = templates(operation, before.as_deref());
        templates
            .iter()
            .flatten()
            .try_for_each(|made| self.may_make(operation, made))
    }

    fn may_use(&self, operation: &Operation, id: &ObjectId) -> Result<()> {
        let entry = self.catalogue.get(id);
        let Some(entry) = entry.filter(|entry| self.settings.offers(self.catalogue, entry)) else {
            let why = format!("there is no {id:?} here");
            return Err(refused(operation, Kind::UnknownObject, &why));
        };
        if !self.logged_in && is_private(&entry.object) {
            let why = format!("{id:?} is private: C_Login first");
            return Err(refused(operation, Kind::NotLoggedIn, &why));
        }
        let used = matches!(operation, Operation::Use { .. } | Operation::Begin { .. });
        let is_own = entry.broker_key && self.settings.clients == Clients::Broker;
        if self.settings.clients == Clients::Broker && !entry.broker_key && !used {
            let why = format!("{id:?} is no key of the broker, which changes only its own");
            return Err(refused(operation, Kind::Forbidden, &why));
        }
        if entry.broker_key && !used && !is_own {
            let why = format!(
                "{id:?} is a key of the broker, which alone deletes, changes and copies it: ask the broker"
            );
            return Err(refused(operation, Kind::Forbidden, &why));
        }
        if self.settings.guards(entry) && !broker_keys::permits(operation, &entry.object) {
            let why = format!(
                "{id:?} is a key of the broker, which alone uses it so: ask the broker to do it"
            );
            let kind = Kind::Vendor(ck::CKR_KEY_FUNCTION_NOT_PERMITTED);
            return Err(refused(operation, kind, &why));
        }
        Ok(())
    }

    fn may_make(&self, operation: &Operation, made: &ObjectTemplate<'_>) -> Result<()> {
        let label = made.attributes.get(ck::CKA_LABEL).unwrap_or_default();
        // A transport key that an application planted would open every key that is made later.
        if label.starts_with(HIDDEN_LABEL.as_bytes()) {
            let why = format!("labels that start with {HIDDEN_LABEL} are hsmux's own");
            return Err(refused(operation, Kind::Forbidden, &why));
        }
        if self.settings.clients == Clients::Broker {
            return may_make_for_broker(operation, made);
        }
        if made.is_of_broker() {
            let why = "such a CKA_ID is the broker's own: choose another one";
            return Err(refused(operation, Kind::Forbidden, why));
        }
        if operation.changes_token() && self.doubles_broker_key(made) {
            let why = "it is the public half of a key of the broker, which has one";
            return Err(refused(operation, Kind::Forbidden, why));
        }
        let object = made.object();
        if !self.logged_in && is_private(&object) {
            return Err(refused(operation, Kind::NotLoggedIn, "C_Login first"));
        }
        if operation.changes_token() && !self.settings.shows(&object) {
            let why = "this listener's `keys` do not show such an object";
            return Err(refused(operation, Kind::Forbidden, why));
        }
        Ok(())
    }
}

impl Rights<'_> {
    /// True if it would be a second public half of a key of the broker. Without the mark, it could be destroyed instead
    /// of the first.
    fn doubles_broker_key(&self, made: &ObjectTemplate<'_>) -> bool {
        let public = match made.class {
            Class::PUBLIC_KEY => PublicKey::from_attributes(made.attributes).ok(),
            _ => None,
        };
        public.is_some_and(|public| {
            let id = ObjectId::of_public_key(Class::PRIVATE_KEY, public.spki());
            let entry = self.catalogue.entries.get(&id);
            entry.is_some_and(|entry| entry.broker_key)
        })
    }
}

/// Objects that the broker makes have its mark, or do not outlive it.
fn may_make_for_broker(operation: &Operation, made: &ObjectTemplate<'_>) -> Result<()> {
    if operation.changes_token() && !has_broker_mark(&made.object().attributes) {
        let why = "the broker makes only keys with its own CKA_ID";
        return Err(refused(operation, Kind::Forbidden, why));
    }
    Ok(())
}

/// Attributes that an operation sets.
struct ObjectTemplate<'a> {
    attributes: &'a Attributes,
    class: Class,
    /// What is known of the object that is changed or copied.
    before: Option<&'a Object>,
}

impl ObjectTemplate<'_> {
    /// The object as it will be, as far as that is known.
    fn object(&self) -> Object {
        let before = self.before.map(|object| object.attributes.clone());
        let mut attributes = before.unwrap_or_default();
        for attribute in &self.attributes.0 {
            attributes.set(attribute.kind, attribute.value.0.clone());
        }
        let (class, name) = (self.class, [0; 32]);
        Object {
            id: ObjectId { class, name },
            attributes,
        }
    }

    /// True if the broker would find a version of a key that it has not made. A certificate may have the CKA_ID of its
    /// key.
    fn is_of_broker(&self) -> bool {
        self.class != Class::CERTIFICATE && has_broker_mark(self.attributes)
    }
}

fn is_signature(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Use {
            verb: Verb::Sign,
            ..
        }
    )
}

/// The object that is changed, or copied with changes.
fn changed(operation: &Operation) -> Option<&ObjectRef> {
    match operation {
        Operation::Copy { object, .. } | Operation::SetAttributes { object, .. } => Some(object),
        _ => None,
    }
}

fn templates<'a>(
    operation: &'a Operation,
    before: Option<&'a Object>,
) -> [Option<ObjectTemplate<'a>>; 2] {
    let of = |attributes, class| {
        Some(ObjectTemplate {
            attributes,
            class,
            before,
        })
    };
    let named = |attributes: &Attributes, otherwise| {
        let class = attributes.number(ck::CKA_CLASS).map(Class);
        class.unwrap_or(otherwise)
    };
    match operation {
        Operation::Generate { template, .. } => [of(template, Class::SECRET_KEY), None],
        Operation::GeneratePair {
            public, private, ..
        } => [
            of(public, Class::PUBLIC_KEY),
            of(private, Class::PRIVATE_KEY),
        ],
        Operation::Derive { template, .. } | Operation::Unwrap { template, .. } => {
            // Nothing else comes of these, whatever the template says.
            let class = match named(template, Class::SECRET_KEY) {
                Class::PRIVATE_KEY => Class::PRIVATE_KEY,
                _ => Class::SECRET_KEY,
            };
            [of(template, class), None]
        }
        Operation::Create { template, .. } => [of(template, named(template, Class::DATA)), None],
        Operation::Copy { template, .. } | Operation::SetAttributes { template, .. } => {
            // Gone since it was looked for, and with it what would be done.
            let class = before.map_or(Class::DATA, |object| object.id.class);
            [of(template, class), None]
        }
        Operation::Use { .. }
        | Operation::Random { .. }
        | Operation::Wrap { .. }
        | Operation::Destroy { .. }
        | Operation::Read { .. }
        | Operation::Begin { .. } => [None, None],
    }
}

fn refused(operation: &Operation, kind: Kind, why: &str) -> Error {
    Error::request(kind, why).at(operation.call())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use hsmux_pool::{Options, Pool, Seat};
    use hsmux_token::fake::FakeToken;
    use hsmux_token::{Mechanism, Token};

    use super::*;

    const MARK: &[u8] = b"hsmb\x01rest";

    fn key(name: u8, id: &[u8]) -> Object {
        Object {
            id: ObjectId {
                class: Class::SECRET_KEY,
                name: [name; 32],
            },
            attributes: Attributes::default()
                .with_number(ck::CKA_CLASS, ck::CKO_SECRET_KEY)
                .with_number(ck::CKA_KEY_TYPE, ck::CKK_GENERIC_SECRET)
                .with_flag(ck::CKA_PRIVATE, false)
                .with(ck::CKA_ID, id.to_vec()),
        }
    }

    fn using(key: &Object) -> Operation {
        Operation::Use {
            verb: Verb::Sign,
            key: key.id.into(),
            mechanism: Mechanism::plain(ck::CKM_SHA256_HMAC),
            data: Vec::new().into(),
        }
    }

    fn destroying(key: &Object) -> Operation {
        Operation::Destroy {
            object: key.id.into(),
        }
    }

    fn making(id: &[u8], label: &str) -> Operation {
        let template = Attributes::default()
            .with_flag(ck::CKA_TOKEN, true)
            .with(ck::CKA_ID, id.to_vec())
            .with(ck::CKA_LABEL, label.as_bytes().to_vec());
        Operation::Generate {
            mechanism: Mechanism::plain(ck::CKM_AES_KEY_GEN),
            template,
        }
    }

    #[test]
    fn the_broker_uses_all_keys_and_changes_its_own_alone() {
        let (own, other) = (key(1, MARK), key(2, b"another"));
        let token = FakeToken::builder("one").objects(vec![own.clone(), other.clone()]);
        let token = token.build();
        let seat = Seat {
            name: "one".into(),
            member: "one".into(),
            weight: 1,
            timeout: Duration::from_secs(20),
            connector: Arc::new(move || Ok(Arc::clone(&token) as Arc<dyn Token>)),
        };
        let pool = Pool::start(Options::default(), vec![seat]).unwrap();
        let text = "[pool]\nlabel = \"web\"\n[[token]]\nmodule = \"/usr/lib/vendor.so\"\nuri = \"pkcs11:token=one\"\n\
                    pin = { file = \"one.pin\" }\n";
        let config = hsmux_config::parse(Path::new("/hsmux.toml"), text).unwrap();
        let settings = Settings::of_service(&config, Clients::Broker);
        let catalogue = pool.catalogue();
        let rights = Rights {
            settings: &settings,
            catalogue: &catalogue,
            logged_in: true,
        };
        let may = |operation: &Operation| rights.check(operation, |_| None).map_err(|e| e.kind());
        for key in [&own, &other] {
            assert_eq!(may(&using(key)), Ok(()));
        }
        assert_eq!(may(&destroying(&own)), Ok(()));
        assert_eq!(may(&destroying(&other)), Err(Kind::Forbidden));
        assert_eq!(may(&making(MARK, "mine")), Ok(()));
        assert_eq!(may(&making(b"another", "mine")), Err(Kind::Forbidden));
        // A transport key would open every key that is made later.
        let label = format!("{HIDDEN_LABEL}-1");
        assert_eq!(may(&making(MARK, &label)), Err(Kind::Forbidden));
        let wrap = Operation::Wrap {
            mechanism: Mechanism::plain(ck::CKM_AES_KEY_WRAP_PAD),
            wrapping: own.id.into(),
            key: own.id.into(),
        };
        assert_eq!(may(&wrap), Err(Kind::Forbidden));
        // It would hide the public key of another, and could then destroy it.
        let template = Attributes::default()
            .with_number(ck::CKA_CLASS, ck::CKO_PUBLIC_KEY)
            .with_flag(ck::CKA_TOKEN, true)
            .with(ck::CKA_ID, MARK.to_vec());
        let create = Operation::Create {
            template: template.clone(),
            near: None,
        };
        let rename = Operation::SetAttributes {
            object: own.id.into(),
            template,
        };
        for change in [create, rename] {
            assert_eq!(may(&change), Err(Kind::Forbidden));
        }
    }
}
