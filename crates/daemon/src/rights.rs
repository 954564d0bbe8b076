//! Whether an application may do what it asks: looked at once, before the pool sees it.

use hsmux_pool::{Catalogue, HIDDEN_LABEL};
use hsmux_token::{
    Attributes, Class, Error, Kind, Object, ObjectId, ObjectRef, Operation, Result, SessionObject,
    ck,
};

use crate::settings::{Settings, is_private};

/// All that decides about one request.
pub struct Rights<'a> {
    /// The listener's.
    pub settings: &'a Settings,
    /// What there is.
    pub catalogue: &'a Catalogue,
    /// Whether the application has logged in.
    pub logged_in: bool,
}

impl Rights<'_> {
    /// Whether the operation may run; `owns` says which session objects are the application's.
    pub fn check(
        &self,
        operation: &Operation,
        owns: impl Fn(&SessionObject) -> bool,
    ) -> Result<()> {
        // First of all, for the rest believes what it reads in a template.
        operation.check()?;
        if self.settings.listener.read_only && operation.changes_token() {
            let why = "this listener is read-only; session objects are allowed";
            return Err(refused(operation, Kind::ReadOnly, why));
        }
        if self.settings.of_host && operation.exports() {
            let why = "another host takes no key out of a token";
            return Err(refused(operation, Kind::Forbidden, why));
        }
        for object in operation.objects() {
            match object {
                ObjectRef::Token(id) => self.may_use(operation, id)?,
                ObjectRef::Session(session) if owns(session) => {}
                ObjectRef::Session(_) => {
                    let why = "no such session object of this application";
                    return Err(refused(operation, Kind::UnknownObject, why));
                }
            }
        }
        let templates = templates(operation);
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
        Ok(())
    }

    fn may_make(&self, operation: &Operation, made: &Template<'_>) -> Result<()> {
        let label = made.attributes.get(ck::CKA_LABEL).unwrap_or_default();
        // A transport key that an application planted would open every key that is made later.
        if label.starts_with(HIDDEN_LABEL.as_bytes()) {
            let why = format!("labels that start with {HIDDEN_LABEL} are hsmux's own");
            return Err(refused(operation, Kind::Forbidden, &why));
        }
        let Some(class) = made.class else {
            return Ok(());
        };
        let object = Object {
            id: ObjectId {
                class,
                name: [0; 32],
            },
            attributes: made.attributes.clone(),
        };
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

/// Attributes that an operation sets; `class` where it makes an object.
struct Template<'a> {
    attributes: &'a Attributes,
    class: Option<Class>,
}

fn templates(operation: &Operation) -> [Option<Template<'_>>; 2] {
    let of = |attributes, class| Some(Template { attributes, class });
    let named = |attributes: &Attributes, otherwise| {
        let class = attributes.number(ck::CKA_CLASS).map(Class);
        Some(class.unwrap_or(otherwise))
    };
    match operation {
        Operation::Generate { template, .. } => [of(template, Some(Class::SECRET_KEY)), None],
        Operation::GeneratePair {
            public, private, ..
        } => [
            of(public, Some(Class::PUBLIC_KEY)),
            of(private, Some(Class::PRIVATE_KEY)),
        ],
        Operation::Derive { template, .. } | Operation::Unwrap { template, .. } => {
            [of(template, named(template, Class::SECRET_KEY)), None]
        }
        Operation::Create { template, .. } => [of(template, named(template, Class::DATA)), None],
        Operation::Copy { template, .. } | Operation::SetAttributes { template, .. } => {
            [of(template, None), None]
        }
        Operation::Use { .. }
        | Operation::Random { .. }
        | Operation::Wrap { .. }
        | Operation::Destroy { .. }
        | Operation::Read { .. } => [None, None],
    }
}

fn refused(operation: &Operation, kind: Kind, why: &str) -> Error {
    Error::request(kind, why).at(operation.call())
}
