//! C_CreateObject, C_CopyObject, C_DestroyObject, C_SetAttributeValue, and reading an attribute.

use std::borrow::Cow;
use std::sync::Arc;

use hsmux_token::ck::*;
use hsmux_token::{Attribute, Attributes, Class, Made, ObjectId, Operation};

use super::{AttributeValue, ObjectEntry, ObjectLocation, local, template};
use crate::app::App;
use crate::rv::{Result, Rv};

/// The identity and the place of an object, which never change.
const FIXED: [CK_ATTRIBUTE_TYPE; 4] = [CKA_CLASS, CKA_KEY_TYPE, CKA_TOKEN, CKA_LOCAL];

/// Attributes that a copy takes from its original.
const INHERITED: [CK_ATTRIBUTE_TYPE; 3] = [CKA_CLASS, CKA_KEY_TYPE, CKA_CERTIFICATE_TYPE];

/// Attributes in which a copy may differ and still be used as its original.
const NAMES: [CK_ATTRIBUTE_TYPE; 3] = [CKA_TOKEN, CKA_LABEL, CKA_ID];

impl App {
    /// C_CreateObject.
    pub fn create(&self, session: u64, template: Attributes) -> Result<u64> {
        let class = template.number(CKA_CLASS);
        let class = Class(class.ok_or(Rv(CKR_TEMPLATE_INCOMPLETE))?);
        self.may_make(session, class, &template)?;
        template::untrusted(&template)?;
        template::complete(class, &template)?;
        if local::is_local(class, &template) {
            let attributes = local::complete(class, &template)?;
            let here = ObjectLocation::Here;
            return self.made(self.objects.insert(here, session, attributes));
        }
        self.make_one(
            session,
            &Operation::Create {
                template,
                near: None,
            },
        )
    }

    /// C_CopyObject.
    pub fn copy(&self, session: u64, object: u64, template: Attributes) -> Result<u64> {
        let original = self.objects.get(object)?;
        if !original.permits(CKA_COPYABLE) {
            return Err(Rv(CKR_ACTION_PROHIBITED));
        }
        let another = |new: &Attribute| {
            INHERITED.contains(&new.kind)
                && original.attributes.get(new.kind) != Some(&*new.value.0)
        };
        if template.0.iter().any(another) {
            return Err(Rv(CKR_ATTRIBUTE_READ_ONLY));
        }
        let mut whole = original.attributes.clone();
        whole.set_flag(CKA_TOKEN, original.is_token());
        for attribute in &template.0 {
            whole.set(attribute.kind, attribute.value.0.clone());
        }
        template::check(&template)?;
        template::untrusted(&template)?;
        self.may_make(session, original.class, &whole)?;
        let token = template::is_token(&whole);
        if local::is_local(original.class, &whole) {
            let here = ObjectLocation::Here;
            return self.made(self.objects.insert(here, session, whole));
        }
        if let Some(id) = lasting(&original, token, &template) {
            let copy = ObjectLocation::Copy(id);
            return self.made(self.objects.insert(copy, session, whole));
        }
        let operation = match original.reference() {
            Some(object) => Operation::Copy { object, template },
            None => Operation::Create {
                template: whole,
                near: None,
            },
        };
        self.make_one(session, &operation)
    }

    /// C_DestroyObject.
    pub fn destroy(&self, session: u64, object: u64) -> Result {
        let entry = self.may_change(session, object)?;
        if !entry.permits(CKA_DESTROYABLE) {
            return Err(Rv(CKR_ACTION_PROHIBITED));
        }
        if let Some(object) = entry.own_reference() {
            self.backend.execute(&Operation::Destroy { object })?;
        }
        if entry.is_token() {
            return self.objects.reread(&*self.backend);
        }
        self.objects.remove(object);
        Ok(())
    }

    /// C_SetAttributeValue.
    pub fn set_attributes(&self, session: u64, object: u64, template: &Attributes) -> Result {
        template::check(template)?;
        template::untrusted(template)?;
        let entry = self.may_change(session, object)?;
        if !entry.permits(CKA_MODIFIABLE) {
            return Err(Rv(CKR_ACTION_PROHIBITED));
        }
        if template.0.iter().any(|new| FIXED.contains(&new.kind)) {
            return Err(Rv(CKR_ATTRIBUTE_READ_ONLY));
        }
        if let Some(object) = entry.own_reference() {
            let template = template.clone();
            self.backend
                .execute(&Operation::SetAttributes { object, template })?;
        }
        if entry.is_token() {
            return self.objects.reread(&*self.backend);
        }
        let mut attributes = entry.attributes.clone();
        for attribute in &template.0 {
            attributes.set(attribute.kind, attribute.value.0.clone());
        }
        let changed = ObjectEntry::new(object, entry.location, entry.session, attributes);
        self.objects.put(changed);
        Ok(())
    }

    /// An object for C_GetAttributeValue, with the values that the token gives only when it is asked.
    pub fn readable(
        &self,
        session: u64,
        object: u64,
        mut kinds: impl Iterator<Item = CK_ATTRIBUTE_TYPE>,
    ) -> Result<ReadableObject> {
        self.sessions.get(session)?;
        let entry = self.objects.get(object)?;
        let mut more = Attributes::default();
        if entry.is_readable()
            && kinds.any(|kind| matches!(entry.value(kind), AttributeValue::Sensitive))
            && let Some(object) = entry.reference()
        {
            let read = self.backend.execute(&Operation::Read { object })?;
            if let Some(made) = read.into_objects()?.pop() {
                more = made.object.attributes;
            }
        }
        Ok(ReadableObject { entry, more })
    }

    /// C_GetObjectSize: the bytes of what can be read of it.
    pub fn object_size(&self, session: u64, object: u64) -> Result<CK_ULONG> {
        self.sessions.get(session)?;
        let entry = self.objects.get(object)?;
        let sizes = entry.attributes.0.iter().map(|a| a.value.len() as CK_ULONG);
        Ok(sizes.sum())
    }

    /// Allows this session to make an object, or says why not: PKCS#11 3.0, table 6 and section 4.4.
    pub(crate) fn may_make(&self, session: u64, class: Class, template: &Attributes) -> Result {
        template::check(template)?;
        let session = self.sessions.get(session)?;
        if template::is_token(template) && !session.writes {
            return Err(Rv(CKR_SESSION_READ_ONLY));
        }
        if template::is_private(class, template) && !self.sees_private() {
            return Err(Rv(CKR_USER_NOT_LOGGED_IN));
        }
        Ok(())
    }

    fn may_change(&self, session: u64, object: u64) -> Result<Arc<ObjectEntry>> {
        let session = self.sessions.get(session)?;
        let entry = self.objects.get(object)?;
        if entry.is_token() && !session.writes {
            return Err(Rv(CKR_SESSION_READ_ONLY));
        }
        Ok(entry)
    }

    pub(crate) fn make_one(&self, session: u64, operation: &Operation) -> Result<u64> {
        let mut handles = self.make(session, operation)?;
        handles.pop().ok_or(Rv(CKR_DEVICE_ERROR))
    }

    /// Runs an operation that makes objects, and gives their handles.
    pub(crate) fn make(&self, session: u64, operation: &Operation) -> Result<Vec<u64>> {
        let made = self.backend.execute(operation)?.into_objects()?;
        if made.iter().any(|made| made.session.is_none()) {
            // The objects are made whether or not the catalogue can be read just now.
            let _ = self.refresh();
        }
        let adopt = |made: Made| self.made(self.objects.adopt(made, session));
        made.into_iter().map(adopt).collect()
    }
}

/// The token's private key behind a session's copy that needs no object.
///
/// NSS signs TLS handshakes with such copies. An object would be on one member, which alone would do the work, and it
/// would go with that member's worker. A name in this process lets every member do the work.
fn lasting(original: &ObjectEntry, token: bool, template: &Attributes) -> Option<ObjectId> {
    let (ObjectLocation::Token(id) | ObjectLocation::Copy(id)) = original.location else {
        return None;
    };
    let named = template.0.iter().all(|new| NAMES.contains(&new.kind));
    (original.class == Class::PRIVATE_KEY && !token && named).then_some(id)
}

/// An object and what was read of it besides.
pub struct ReadableObject {
    entry: Arc<ObjectEntry>,
    more: Attributes,
}

impl ReadableObject {
    /// The answer of C_GetAttributeValue.
    pub fn value(&self, kind: CK_ATTRIBUTE_TYPE) -> AttributeValue<'_> {
        match self.more.get(kind) {
            Some(value) => AttributeValue::Known(Cow::Borrowed(value)),
            None => self.entry.value(kind),
        }
    }
}
