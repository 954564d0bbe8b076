//! Key management: generate, wrap, unwrap, derive.

use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class, Mechanism, ObjectRef, Operation, Uses};

use crate::app::App;
use crate::crypt::of_key;
use crate::object::{ObjectEntry, is_token};
use crate::rv::{Result, Rv};

impl App {
    /// C_GenerateKey.
    pub fn generate(
        &self,
        session: u64,
        mechanism: Mechanism,
        template: Attributes,
    ) -> Result<u64> {
        self.may_make(session, Class::SECRET_KEY, &template)?;
        self.offers(&mechanism, Uses::GENERATE)?;
        let operation = Operation::Generate {
            mechanism,
            template,
        };
        self.make_one(session, &operation)
    }

    /// C_GenerateKeyPair: the public key's handle, and the private key's.
    pub fn generate_pair(
        &self,
        session: u64,
        mechanism: Mechanism,
        public: Attributes,
        private: Attributes,
    ) -> Result<(u64, u64)> {
        self.may_make(session, Class::PUBLIC_KEY, &public)?;
        self.may_make(session, Class::PRIVATE_KEY, &private)?;
        self.offers(&mechanism, Uses::GENERATE_PAIR)?;
        if is_token(&public) != is_token(&private) {
            return self.generate_mixed(session, mechanism, &public, private);
        }
        let operation = Operation::GeneratePair {
            mechanism,
            public,
            private,
        };
        match *self.make(session, &operation)? {
            [public, private] => Ok((public, private)),
            _ => Err(Rv(CKR_DEVICE_ERROR)),
        }
    }

    /// C_DeriveKey.
    pub fn derive(
        &self,
        session: u64,
        mechanism: Mechanism,
        base: u64,
        template: Attributes,
    ) -> Result<u64> {
        self.may_make(session, Class::SECRET_KEY, &template)?;
        self.offers(&mechanism, Uses::DERIVE)?;
        let base = self.key(base)?;
        let operation = Operation::Derive {
            key: member_key(&base, CKA_DERIVE, CKR_KEY_TYPE_INCONSISTENT)?,
            mechanism,
            template,
        };
        self.make_one(session, &operation)
    }

    /// C_UnwrapKey.
    pub fn unwrap(
        &self,
        session: u64,
        mechanism: Mechanism,
        unwrapping: u64,
        wrapped: &[u8],
        template: Attributes,
    ) -> Result<u64> {
        let class = Class(template.number(CKA_CLASS).unwrap_or(CKO_SECRET_KEY));
        self.may_make(session, class, &template)?;
        self.offers(&mechanism, Uses::UNWRAP)?;
        let unwrapping = self.key(unwrapping);
        let unwrapping = unwrapping.map_err(|_| Rv(CKR_UNWRAPPING_KEY_HANDLE_INVALID))?;
        let operation = Operation::Unwrap {
            unwrapping: member_key(
                &unwrapping,
                CKA_UNWRAP,
                CKR_UNWRAPPING_KEY_TYPE_INCONSISTENT,
            )?,
            mechanism,
            wrapped: bytes::Bytes::copy_from_slice(wrapped).into(),
            template,
        };
        self.make_one(session, &operation)
    }

    /// C_WrapKey. A length query also wraps: no lease and no answer is kept for the second call.
    pub fn wrap(
        &self,
        session: u64,
        mechanism: Mechanism,
        wrapping: u64,
        key: u64,
    ) -> Result<bytes::Bytes> {
        self.sessions.get(session)?;
        self.offers(&mechanism, Uses::WRAP)?;
        let wrapping = self.key(wrapping);
        let wrapping = wrapping.map_err(|_| Rv(CKR_WRAPPING_KEY_HANDLE_INVALID))?;
        let key = self.key(key)?;
        if !key.permits(CKA_EXTRACTABLE) {
            return Err(Rv(CKR_KEY_UNEXTRACTABLE));
        }
        let key = key.reference().ok_or(Rv(CKR_KEY_NOT_WRAPPABLE))?;
        if wrapping.reference().is_none() {
            return self.wrap_with_local(mechanism, &wrapping, key);
        }
        let wrapping = member_key(&wrapping, CKA_WRAP, CKR_WRAPPING_KEY_TYPE_INCONSISTENT)?;
        self.wrapped(mechanism, wrapping, key)
    }

    /// A public key of this process wraps where the other key is: it goes there for the one call.
    fn wrap_with_local(
        &self,
        mechanism: Mechanism,
        wrapping: &ObjectEntry,
        key: ObjectRef,
    ) -> Result<bytes::Bytes> {
        if !wrapping.permits(CKA_WRAP) {
            return Err(Rv(CKR_KEY_FUNCTION_NOT_PERMITTED));
        }
        let mut template = wrapping.public()?.to_attributes();
        // Said by a token, not to it (PKCS#11 3.1, section 6.1.2).
        template.remove(CKA_MODULUS_BITS);
        template.set_flag(CKA_TOKEN, false);
        template.set_flag(CKA_WRAP, true);
        let public = Operation::Create {
            template,
            near: Some(key),
        };
        let made = self.backend.execute(&public)?;
        let made = made.into_objects()?.pop().and_then(|made| made.session);
        let lent = ObjectRef::Session(made.ok_or(Rv(CKR_DEVICE_ERROR))?);
        let wrapped = self.wrapped(mechanism, lent, key);
        // If this fails, the object goes with its worker.
        let _ = self.backend.execute(&Operation::Destroy { object: lent });
        wrapped
    }

    fn wrapped(
        &self,
        mechanism: Mechanism,
        wrapping: ObjectRef,
        key: ObjectRef,
    ) -> Result<bytes::Bytes> {
        let operation = Operation::Wrap {
            wrapping,
            mechanism,
            key,
        };
        let outcome = self.backend.execute(&operation).map_err(of_key)?;
        Ok(outcome.into_bytes()?)
    }

    fn offers(&self, mechanism: &Mechanism, uses: Uses) -> Result {
        let catalogue = self.objects.catalogue();
        match catalogue.mechanisms.get(mechanism.kind) {
            Some(info) if info.flags & uses.bits() != 0 => Ok(()),
            _ => Err(Rv(CKR_MECHANISM_INVALID)),
        }
    }
}

fn member_key(key: &ObjectEntry, usage: CK_ATTRIBUTE_TYPE, elsewhere: CK_RV) -> Result<ObjectRef> {
    if !key.permits(usage) {
        return Err(Rv(CKR_KEY_FUNCTION_NOT_PERMITTED));
    }
    key.reference().ok_or(Rv(elsewhere))
}
