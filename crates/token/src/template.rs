//! What a template may say: the part that every layer must read in the same way.

#[allow(clippy::wildcard_imports)] // a table of constants
use crate::ck::*;
use crate::{Attributes, Error, Kind, Operation, Result};

const FLAGS: &[u64] = &[
    CKA_TOKEN,
    CKA_PRIVATE,
    CKA_TRUSTED,
    CKA_SENSITIVE,
    CKA_ENCRYPT,
    CKA_DECRYPT,
    CKA_WRAP,
    CKA_UNWRAP,
    CKA_SIGN,
    CKA_SIGN_RECOVER,
    CKA_VERIFY,
    CKA_VERIFY_RECOVER,
    CKA_DERIVE,
    CKA_EXTRACTABLE,
    CKA_LOCAL,
    CKA_NEVER_EXTRACTABLE,
    CKA_ALWAYS_SENSITIVE,
    CKA_MODIFIABLE,
    CKA_COPYABLE,
    CKA_DESTROYABLE,
    CKA_ALWAYS_AUTHENTICATE,
    CKA_WRAP_WITH_TRUSTED,
];

const NUMBERS: &[u64] = &[
    CKA_CLASS,
    CKA_CERTIFICATE_TYPE,
    CKA_CERTIFICATE_CATEGORY,
    CKA_KEY_TYPE,
    CKA_MODULUS_BITS,
    CKA_PRIME_BITS,
    CKA_VALUE_LEN,
    CKA_KEY_GEN_MECHANISM,
];

/// No object has as many attributes; a limit, for each is compared with all before it.
const LONGEST: usize = 1024;

impl Attributes {
    /// Refuses flags and numbers of a wrong width, flags that are neither true nor false, and an
    /// attribute that stands twice; the error is a `CK_RV`.
    ///
    /// The layers below must not have to guess: `CKA_TOKEN` decides who may make the object, and a vendor's module may read a
    /// malformed one in another way than we do.
    pub fn check(&self) -> Result<(), u64> {
        for (at, attribute) in self.0.iter().enumerate() {
            let value = &attribute.value[..];
            if FLAGS.contains(&attribute.kind) && !matches!(value, [CK_FALSE | CK_TRUE])
                || NUMBERS.contains(&attribute.kind) && value.len() != size_of::<CK_ULONG>()
            {
                return Err(CKR_ATTRIBUTE_VALUE_INVALID);
            }
            let mut before = self.0[..at].iter();
            if at >= LONGEST || before.any(|other| other.kind == attribute.kind) {
                return Err(CKR_TEMPLATE_INCONSISTENT);
            }
        }
        Ok(())
    }
}

impl Operation {
    /// The templates that it brings.
    pub fn templates(&self) -> impl Iterator<Item = &Attributes> {
        let (first, second) = match self {
            Self::Generate { template, .. }
            | Self::Derive { template, .. }
            | Self::Unwrap { template, .. }
            | Self::Create { template, .. }
            | Self::Copy { template, .. }
            | Self::SetAttributes { template, .. } => (Some(template), None),
            Self::GeneratePair {
                public, private, ..
            } => (Some(public), Some(private)),
            Self::Use { .. }
            | Self::Random { .. }
            | Self::Wrap { .. }
            | Self::Destroy { .. }
            | Self::Read { .. }
            | Self::Begin { .. } => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// Refuses templates that could be read in two ways ([`Attributes::check`]), and keys that no pool can use:
    /// those that want a login for each use. To be asked before [`Self::changes_token`] or anything else that looks
    /// into templates is believed.
    pub fn check(&self) -> Result<()> {
        let refused = |code| Error::vendor(self.call(), code);
        for template in self.templates() {
            template.check().map_err(refused)?;
            if template.flag(CKA_ALWAYS_AUTHENTICATE) == Some(true) {
                let why = "CKA_ALWAYS_AUTHENTICATE: a pool gives no PIN for each use; leave it out";
                let refused = Kind::Vendor(CKR_TEMPLATE_INCONSISTENT);
                return Err(Error::request(refused, format!("{}: {why}", self.call())));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Blob, Scope};

    fn of(attributes: &[(u64, &[u8])]) -> Attributes {
        let attribute = |&(kind, value): &(u64, &[u8])| Attribute {
            kind,
            value: Blob::from(value.to_vec()),
        };
        Attributes(attributes.iter().map(attribute).collect())
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let good = of(&[(CKA_TOKEN, &[1]), (CKA_CLASS, &[0; 8]), (CKA_LABEL, b"x")]);
        assert_eq!(good.check(), Ok(()));
        for value in [&[][..], &[2], &[1, 0], &[1; 8]] {
            let flag = of(&[(CKA_TOKEN, value)]);
            assert_eq!(flag.check(), Err(CKR_ATTRIBUTE_VALUE_INVALID), "{value:?}");
        }
        let number = of(&[(CKA_CLASS, &[0; 4])]);
        assert_eq!(number.check(), Err(CKR_ATTRIBUTE_VALUE_INVALID));
        let twice = of(&[(CKA_LABEL, b"a"), (CKA_ID, b""), (CKA_LABEL, b"a")]);
        assert_eq!(twice.check(), Err(CKR_TEMPLATE_INCONSISTENT));
        let many: Vec<_> = (1..2_000_u64).map(|kind| (kind << 32, &b""[..])).collect();
        assert_eq!(of(&many).check(), Err(CKR_TEMPLATE_INCONSISTENT));
    }

    #[test]
    fn every_template_of_an_operation_is_looked_at() {
        let bad = || of(&[(CKA_TOKEN, &[0]), (CKA_TOKEN, &[1])]);
        let object = crate::ObjectRef::Token(crate::ObjectId::of_data(b"", b"", b""));
        let mechanism = || crate::Mechanism::plain(CKM_AES_KEY_GEN);
        for operation in [
            Operation::Create {
                template: bad(),
                near: None,
            },
            Operation::Copy {
                object,
                template: bad(),
            },
            Operation::SetAttributes {
                object,
                template: bad(),
            },
            Operation::Generate {
                mechanism: mechanism(),
                template: bad(),
            },
            Operation::GeneratePair {
                mechanism: mechanism(),
                public: of(&[]),
                private: bad(),
            },
            Operation::GeneratePair {
                mechanism: mechanism(),
                public: bad(),
                private: of(&[]),
            },
            Operation::Derive {
                key: object,
                mechanism: mechanism(),
                template: bad(),
            },
            Operation::Unwrap {
                unwrapping: object,
                mechanism: mechanism(),
                wrapped: Blob::default(),
                template: bad(),
            },
        ] {
            let refused = operation.check().unwrap_err();
            assert_eq!(refused.scope(), Scope::Request, "{refused}");
            assert_eq!(refused.to_rv(), CKR_TEMPLATE_INCONSISTENT);
        }
    }
}
