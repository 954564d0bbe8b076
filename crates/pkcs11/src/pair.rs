//! Pairs of which one half is a session object and the other one a token object.
//!
//! A pool makes both halves in one place, so they are made alike, and the public half is then put where it belongs.

use hsmux_software::PublicKey;
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class, KeyKind, Made, Mechanism, ObjectRef, Operation};

use crate::app::App;
use crate::object::{ObjectLocation, complete_here, is_token};
use crate::rv::{Result, Rv};

impl App {
    /// C_GenerateKeyPair where the templates' CKA_TOKEN differ.
    pub(crate) fn generate_mixed(
        &self,
        session: u64,
        mechanism: Mechanism,
        public: &Attributes,
        private: Attributes,
    ) -> Result<(u64, u64)> {
        let on_token = is_token(&private);
        let kind = hsmux_token::entry(mechanism.kind).map(|entry| entry.key);
        if on_token && kind != Some(KeyKind::Rsa) {
            // Tokens tell the public key of RSA keys alone: the public halves of others have to be there.
            return Err(Rv(CKR_TEMPLATE_INCONSISTENT));
        }
        let mut alike = public.clone();
        alike.set_flag(CKA_TOKEN, on_token);
        let operation = Operation::GeneratePair {
            mechanism,
            public: alike,
            private,
        };
        let made = self.backend.execute(&operation)?.into_objects()?;
        let [half, secret] = <[Made; 2]>::try_from(made).map_err(|_| Rv(CKR_DEVICE_ERROR))?;
        let moved = self.move_public(session, &half, public);
        let public = match moved {
            Ok(public) => public,
            Err(error) => {
                let _ = self.take_away(&half);
                let _ = self.take_away(&secret);
                return Err(error);
            }
        };
        if on_token {
            // The pair is made whether or not the catalogue can be read just now.
            let _ = self.refresh();
        }
        Ok((public, self.made(self.objects.adopt(secret, session))?))
    }

    /// Makes the public half again, where its template wants it, and takes away the one that was generated.
    fn move_public(&self, session: u64, half: &Made, template: &Attributes) -> Result<u64> {
        let key = PublicKey::from_attributes(&half.object.attributes)?;
        let mut whole = key.to_attributes();
        for attribute in &template.0 {
            whole.set(attribute.kind, attribute.value.0.clone());
        }
        if is_token(template) {
            // It follows from the modulus, and tokens refuse to be told.
            whole.remove(CKA_MODULUS_BITS);
            self.take_away(half)?;
            let (template, near) = (whole, None);
            return self.make_one(session, &Operation::Create { template, near });
        }
        let attributes = complete_here(Class::PUBLIC_KEY, &whole)?;
        self.take_away(half)?;
        let here = ObjectLocation::Here;
        self.made(self.objects.insert(here, session, attributes))
    }

    fn take_away(&self, made: &Made) -> Result {
        let object = match made.session {
            Some(object) => ObjectRef::Session(object),
            None => ObjectRef::Token(made.object.id),
        };
        self.backend.execute(&Operation::Destroy { object })?;
        Ok(())
    }
}
