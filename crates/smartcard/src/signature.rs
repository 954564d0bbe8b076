use crate::tlv::{Tlv, TlvError};

/// An ECDSA signature that is not the DER of r and s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Not a SEQUENCE of two INTEGERs.
    #[error("not an ECDSA signature: {0}")]
    NotDer(#[from] TlvError),
    /// r or s is longer than the curve's field.
    #[error("an ECDSA signature whose numbers are larger than the curve")]
    TooLarge,
}

/// r and s, each as long as the curve's field: the form of PKCS#11, from the DER that a card answers (RFC 3279,
/// section 2.2.3).
pub fn ecdsa_fixed(signature: &[u8], field_len: usize) -> Result<Vec<u8>, SignatureError> {
    const INTEGER: u32 = 0x02;
    const SEQUENCE: u32 = 0x30;
    let (sequence, _) = Tlv::first(signature)?;
    if sequence.tag != SEQUENCE {
        return Err(TlvError::Missing(SEQUENCE).into());
    }
    let mut fixed = vec![0; 2 * field_len];
    let mut numbers = sequence.children();
    for half in fixed.chunks_exact_mut(field_len.max(1)) {
        let number = numbers.next().ok_or(TlvError::Missing(INTEGER))??;
        if number.tag != INTEGER {
            return Err(TlvError::Missing(INTEGER).into());
        }
        let zeros = number.value.iter().take_while(|byte| **byte == 0).count();
        let digits = &number.value[zeros..];
        let start = field_len
            .checked_sub(digits.len())
            .ok_or(SignatureError::TooLarge)?;
        half[start..].copy_from_slice(digits);
    }
    Ok(fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_padded_to_the_field() {
        let der = [0x30, 7, 2, 2, 0, 0x80, 2, 1, 5];
        assert_eq!(ecdsa_fixed(&der, 2).unwrap(), [0, 0x80, 0, 5]);
        assert!(ecdsa_fixed(&der, 0).unwrap().is_empty());
        let large = [0x30, 7, 2, 2, 1, 0x80, 2, 1, 5];
        assert_eq!(ecdsa_fixed(&large, 1), Err(SignatureError::TooLarge));
        assert!(ecdsa_fixed(&[0x30, 3, 2, 1, 5], 2).is_err());
        assert!(ecdsa_fixed(&[1, 2, 3], 2).is_err());
    }
}
