use hsmux_software::PublicKey;
use hsmux_token::{Attributes, Class, ck};

use super::{CvcError, tag};
use crate::curve::Curve;
use crate::tlv::{Tlv, TlvError};

/// The public key of a certificate (TR-03110-3, appendix D.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CvPublicKey {
    algorithm: Vec<u8>,
    numbers: KeyNumbers,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum KeyNumbers {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// The curve is not said where the issuer's certificate says it, and not known if its numbers are not.
    Ec {
        curve: Result<&'static Curve, &'static str>,
        point: Vec<u8>,
    },
}

impl CvPublicKey {
    pub(super) fn parse(key: Tlv<'_>) -> Result<Self, CvcError> {
        let algorithm = key.child(tag::OBJECT_IDENTIFIER)?.value.to_vec();
        let numbers = match key.child(tag::PUBLIC_POINT) {
            Ok(point) => KeyNumbers::Ec {
                curve: curve(key)?,
                point: point.value.to_vec(),
            },
            Err(TlvError::Missing(_)) => KeyNumbers::Rsa {
                modulus: key.child(tag::MODULUS)?.value.to_vec(),
                exponent: key.child(tag::EXPONENT)?.value.to_vec(),
            },
            Err(error) => return Err(error.into()),
        };
        Ok(Self { algorithm, numbers })
    }

    /// The signature algorithm: the value of the OID (id-TA-..., TR-03110-3, appendix A.7.3).
    pub fn algorithm(&self) -> &[u8] {
        &self.algorithm
    }

    /// The curve, if it is one and known.
    pub fn curve(&self) -> Option<&'static Curve> {
        match &self.numbers {
            KeyNumbers::Ec { curve, .. } => curve.ok(),
            KeyNumbers::Rsa { .. } => None,
        }
    }

    /// The key as the rest of hsmux has it, with its SubjectPublicKeyInfo.
    pub fn to_public_key(&self) -> Result<PublicKey, CvcError> {
        let class = Attributes::default().with_number(ck::CKA_CLASS, Class::PUBLIC_KEY.0);
        let attributes = match &self.numbers {
            KeyNumbers::Rsa { modulus, exponent } => class
                .with_number(ck::CKA_KEY_TYPE, ck::CKK_RSA)
                .with(ck::CKA_MODULUS, modulus.clone())
                .with(ck::CKA_PUBLIC_EXPONENT, exponent.clone()),
            KeyNumbers::Ec { curve, point } => class
                .with_number(ck::CKA_KEY_TYPE, ck::CKK_EC)
                .with(ck::CKA_EC_PARAMS, curve.map_err(CvcError::Key)?.params())
                .with(ck::CKA_EC_POINT, point.clone()),
        };
        Ok(PublicKey::from_attributes(&attributes)?)
    }
}

fn curve(key: Tlv<'_>) -> Result<Result<&'static Curve, &'static str>, TlvError> {
    let number = |tag| match key.child(tag) {
        Ok(number) => Ok(Some(number.value)),
        Err(TlvError::Missing(_)) => Ok(None),
        Err(error) => Err(error),
    };
    let numbers = (
        number(tag::PRIME)?,
        number(tag::COEFFICIENT_A)?,
        number(tag::COEFFICIENT_B)?,
    );
    Ok(match numbers {
        (Some(prime), Some(a), Some(b)) => {
            Curve::by_numbers(prime, a, b).ok_or("with a curve that is not known here")
        }
        _ => Err("without its curve, which its issuer's certificate tells"),
    })
}
