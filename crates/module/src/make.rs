//! Operations that create, change, read or delete objects.

use hsmux_token::ck::{CKA_CLASS, CKA_ID, CKA_TOKEN};
use hsmux_token::{
    Attributes, Class, Error, Kind, Made, ObjectId, ObjectRef, Operation, Outcome, Result,
    SessionObject,
};

use crate::ModuleToken;
use crate::execute::not_there;
use crate::library::{Handle, Session};
use crate::objects::Values;

impl ModuleToken {
    /// Runs such an operation; `handle` is that of its first object.
    pub(crate) fn change(
        &self,
        session: Session,
        operation: &Operation,
        handle: Handle,
    ) -> Result<Outcome> {
        let library = self.sessions.library();
        if operation.changes_token() {
            self.see_foreign_changes(session)?;
        }
        let _making = operation.changes_token().then(|| self.making());
        let made = match operation {
            Operation::Generate {
                mechanism,
                template,
            } => library.generate(session, mechanism, template)?,
            Operation::GeneratePair {
                mechanism,
                public,
                private,
            } => {
                let (first, second) = library.generate_pair(session, mechanism, public, private)?;
                return self.made(session, &[first, second]);
            }
            Operation::Derive {
                mechanism,
                template,
                ..
            } => library.derive(session, mechanism, handle, template)?,
            Operation::Unwrap {
                mechanism,
                wrapped,
                template,
                ..
            } => library.unwrap(session, mechanism, handle, wrapped, template)?,
            Operation::Create { template, .. } => library.create(session, template)?,
            Operation::Copy { template, .. } => library.copy(session, handle, template)?,
            Operation::Read { object } => {
                let read = self.named(session, &[handle], Values::Shown)?;
                // Once: another object may get its old name.
                if let ObjectRef::Token(id) = object
                    && !self.is_called(&read, *id)
                {
                    self.handles.remove(id);
                }
                return Ok(read);
            }
            Operation::SetAttributes { object, template } => {
                library.set_attributes(session, handle, template)?;
                // The next reading describes it again.
                self.object_cache.remove(handle);
                if let ObjectRef::Token(id) = object {
                    self.end_uses(*id);
                }
                return Ok(Outcome::Done);
            }
            Operation::Destroy { object } => {
                if let ObjectRef::Token(id) = object {
                    self.is_still(session, handle, *id)?;
                }
                library.destroy(session, handle)?;
                self.object_cache.remove(handle);
                if let ObjectRef::Token(id) = object {
                    self.handles.remove(id);
                    self.end_uses(*id);
                }
                return Ok(Outcome::Done);
            }
            Operation::Use { .. }
            | Operation::Random { .. }
            | Operation::Wrap { .. }
            | Operation::Begin { .. } => {
                return Err(Error::request(Kind::Invalid, operation.call()));
            }
        };
        self.made(session, &[made])
    }

    /// Fails for an object that has got another name, also by another process: the one to destroy is not there.
    fn is_still(&self, session: Session, handle: Handle, id: ObjectId) -> Result<()> {
        match self.named(session, &[handle], Values::Never) {
            Ok(read) if !self.is_called(&read, id) => {
                self.handles.remove(&id);
                Err(not_there(&id))
            }
            // One that cannot be read can be destroyed.
            _ => Ok(()),
        }
    }

    /// True if an object that was read has this name.
    fn is_called(&self, read: &Outcome, id: ObjectId) -> bool {
        let Outcome::Objects(objects) = read else {
            return false;
        };
        let mut objects = objects.iter().map(|made| &made.object);
        objects.any(|object| {
            object.id == id || hsmux_software::lacks_public_half(&self.identity, object)
        })
    }

    /// SoftHSM loses a key that another process has added if it writes before it has searched: a search prevents that.
    fn see_foreign_changes(&self, session: Session) -> Result<()> {
        self.search(session, 1)?;
        Ok(())
    }

    /// Names new objects. If one cannot be described, all are deleted, because an error must mean that nothing was
    /// created.
    fn made(&self, session: Session, handles: &[Handle]) -> Result<Outcome> {
        let named = self.named(session, handles, Values::OfSessionObjects);
        if named.is_err() {
            for handle in handles {
                // Only the first error is reported.
                let _ = self.sessions.library().destroy(session, *handle);
            }
        }
        named
    }

    /// Describes and names objects; token objects can be used at once.
    pub(crate) fn named(
        &self,
        session: Session,
        handles: &[Handle],
        values: Values,
    ) -> Result<Outcome> {
        let mut all = Vec::with_capacity(handles.len());
        for handle in handles {
            all.push(self.describe(session, *handle, values)?);
        }
        let others = self.kin(&all);
        all.extend(others);
        let named = hsmux_software::identify(&self.identity, all);
        let mut of_token = Vec::new();
        let made = handles.iter().zip(named).map(|(&handle, object)| {
            let session = object.attributes.flag(CKA_TOKEN) != Some(true);
            if !session {
                of_token.push((object.id, handle));
                self.object_cache
                    .insert(handle, object.clone().without_secrets());
            }
            Made {
                session: session.then_some(SessionObject { owner: 0, handle }),
                object,
            }
        });
        let made = made.collect();
        self.handles.insert_all(&of_token);
        Ok(Outcome::Objects(made))
    }

    /// Known public keys and certificates with the same CKA_ID, which name a private key.
    fn kin(&self, new: &[Attributes]) -> Vec<Attributes> {
        let ids: Vec<_> = new
            .iter()
            .filter(|a| a.number(CKA_CLASS) == Some(Class::PRIVATE_KEY.0))
            .filter_map(|a| a.get(CKA_ID))
            .collect();
        if ids.is_empty() {
            return Vec::new();
        }
        let known = self.object_cache.all();
        let public = known.values().filter(|object| {
            [Class::PUBLIC_KEY, Class::CERTIFICATE].contains(&object.id.class)
                && object
                    .attributes
                    .get(CKA_ID)
                    .is_some_and(|id| ids.contains(&id))
        });
        public.map(|object| object.attributes.clone()).collect()
    }
}
