//! One ticket key, and its derivation.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// A ticket key: AES-256-CBC, then HMAC-SHA256. Its name is in each ticket.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct TicketKey {
    pub(crate) name: [u8; 16],
    pub(crate) cipher: [u8; 32],
    pub(crate) mac: [u8; 32],
}

impl TicketKey {
    /// Derives a key from a secret: servers with the same secret have the same key. The name reveals neither the secret
    /// nor the other parts.
    pub fn derive(secret: &[u8; 32]) -> Self {
        let mut key = Self {
            name: [0; 16],
            cipher: part(secret, b"cipher"),
            mac: part(secret, b"mac"),
        };
        key.name.copy_from_slice(&part(secret, b"name")[..16]);
        key
    }

    /// A key that no other server has.
    pub fn random() -> Result<Self, boring::error::ErrorStack> {
        let mut secret = Zeroizing::new([0; 32]);
        boring::rand::rand_bytes(&mut *secret)?;
        Ok(Self::derive(&secret))
    }
}

/// One block of HKDF-Expand (RFC 5869, section 2.3), which is enough for a part.
fn part(secret: &[u8; 32], what: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(b"hsmux session ticket ");
    mac.update(what);
    mac.update(&[1]);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_secret_has_its_own_key() {
        let (one, other) = (TicketKey::derive(&[1; 32]), TicketKey::derive(&[2; 32]));
        assert!(one == TicketKey::derive(&[1; 32]));
        assert!(one.name != other.name && one.cipher != other.cipher && one.mac != other.mac);
        assert!(one.cipher != one.mac && one.cipher[..16] != one.name);
    }
}
