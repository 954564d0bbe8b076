//! A share's password in the hands of several custodians, n of whom are needed: Shamir's scheme as
//! sc-hsm-tool has it.
//!
//! The password is 8 random bytes, taken as a number below 2^63; the field is that of a random prime of 64
//! bits. Each custodian notes the prime, the number of the share (its x) and its value (its y).

mod prime;

use std::fmt::Write;
use std::str::FromStr;

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::{DkekError, DkekShare, ShareFile, random};

/// The part of one custodian.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct PasswordShare {
    prime: u64,
    id: u64,
    value: u64,
}

/// A new random password, and its shares for `total` custodians, `needed` of whom can make it again.
pub fn split(needed: u8, total: u8) -> Result<(Zeroizing<Vec<u8>>, Vec<PasswordShare>), DkekError> {
    if total < 3 || needed < 2 || needed > total {
        return Err(wrong(
            "3 custodians at least, and of these 2 or more needed",
        ));
    }
    let password = password();
    let prime = prime::random();
    let mut polynomial = Zeroizing::new(vec![u64::from_be_bytes(*password)]);
    polynomial.extend((1..needed).map(|_| below(prime)));
    let share = |id: u8| {
        let id = u64::from(id);
        // Horner's rule, from the highest coefficient down.
        let add =
            |sum, coefficient: &u64| prime::add(prime::mul(sum, id, prime), *coefficient, prime);
        let value = polynomial.iter().rev().fold(0, add);
        PasswordShare { prime, id, value }
    };
    let shares = (1..=total).map(share).collect();
    Ok((Zeroizing::new(password.to_vec()), shares))
}

/// The password again. With fewer shares than are needed it is a wrong one, which no arithmetic can tell.
pub fn combine(shares: &[PasswordShare]) -> Result<Zeroizing<Vec<u8>>, DkekError> {
    let first = shares.first().ok_or_else(|| wrong("there is none"))?;
    let prime = first.prime;
    if shares.iter().any(|share| share.prime != prime) {
        return Err(wrong(
            "they are of different passwords: their primes differ",
        ));
    }
    let mut secret = Zeroizing::new(0);
    for (at, share) in shares.iter().enumerate() {
        // Lagrange's polynomial of this share, at 0.
        let (mut above, mut below) = (1, 1);
        for other in shares[..at].iter().chain(&shares[at + 1..]) {
            if other.id == share.id {
                return Err(wrong(format!("share {} stands twice", share.id)));
            }
            above = prime::mul(above, other.id, prime);
            let distance = prime::add(other.id % prime, prime - share.id % prime, prime);
            below = prime::mul(below, distance, prime);
        }
        let weight = prime::mul(above, prime::inverse(below, prime), prime);
        *secret = prime::add(*secret, prime::mul(share.value, weight, prime), prime);
    }
    Ok(Zeroizing::new(secret.to_be_bytes().to_vec()))
}

/// Opens a share file with the custodians' shares of its password.
///
/// sc-hsm-tool seals with all 8 bytes but drops leading zeros when it puts a password together: of
/// what it sealed with such a one, it opens nothing. Both forms are tried here.
pub fn open(file: &ShareFile, shares: &[PasswordShare]) -> Result<DkekShare, DkekError> {
    let password = combine(shares)?;
    let zeros = password.iter().take_while(|byte| **byte == 0).count();
    match file.open(&password) {
        Err(DkekError::WrongPassword) if zeros > 0 => file.open(&password[zeros..]),
        opened => opened,
    }
}

/// 8 bytes whose first is neither 0 (see [`open`]) nor above 127.
fn password() -> Zeroizing<[u8; 8]> {
    loop {
        let mut password = random::<8>();
        password[0] &= 0x7F;
        if password[0] != 0 {
            return password;
        }
    }
}

fn below(prime: u64) -> u64 {
    loop {
        let number = u64::from_be_bytes(*random());
        if number < prime {
            return number;
        }
    }
}

fn wrong(why: impl Into<String>) -> DkekError {
    DkekError::Custodian(why.into())
}

impl PasswordShare {
    /// A share of its three numbers, as sc-hsm-tool writes them: prime and value in hexadecimal with or
    /// without colons, the number of the share in decimal.
    pub fn new(prime: &str, id: &str, value: &str) -> Result<Self, DkekError> {
        let hex = |name, text: &str| {
            let mut digits = Zeroizing::new(text.to_owned());
            digits.retain(|c| c != ':' && !c.is_whitespace());
            u64::from_str_radix(&digits, 16).map_err(|_| {
                wrong(format!(
                    "its {name} is not a number of 64 bits in hexadecimal"
                ))
            })
        };
        let prime = hex("prime", prime)?;
        let id = id
            .trim()
            .parse()
            .map_err(|_| wrong("its number is not a decimal one"))?;
        let value = hex("value", value)?;
        if !prime::is_prime(prime) || id == 0 || id >= prime || value >= prime {
            return Err(wrong(
                "its numbers do not fit together; look for a slip of the pen",
            ));
        }
        Ok(Self { prime, id, value })
    }

    /// The three lines that sc-hsm-tool shows, for paper or a file.
    pub fn to_text(&self) -> Zeroizing<String> {
        // Its whole room at once: a string that grows leaves copies behind.
        let mut text = Zeroizing::new(String::with_capacity(128));
        let lines = [
            ("Prime       : ", self.prime),
            ("Share value : ", self.value),
        ];
        let [prime, value] = lines.map(|(name, number)| (name, colons(number)));
        let _ = writeln!(text, "{}{}", prime.0, prime.1.as_str());
        let _ = writeln!(text, "Share ID    : {}", self.id);
        let _ = writeln!(text, "{}{}", value.0, value.1.as_str());
        text
    }
}

/// A number as hexadecimal bytes with colons between.
fn colons(number: u64) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(24));
    let bytes = Zeroizing::new(number.to_be_bytes());
    for byte in bytes.iter() {
        let colon = if text.is_empty() { "" } else { ":" };
        let _ = write!(text, "{colon}{byte:02x}");
    }
    text
}

/// Reads the three lines of [`PasswordShare::to_text`]; other lines may be between them.
impl FromStr for PasswordShare {
    type Err = DkekError;

    fn from_str(text: &str) -> Result<Self, DkekError> {
        let named = |name: &str| {
            let value = text.lines().find_map(|line| {
                let (known, value) = line.split_once(':')?;
                known.trim().eq_ignore_ascii_case(name).then_some(value)
            });
            value.ok_or_else(|| wrong(format!("it has no line {name:?}")))
        };
        Self::new(named("Prime")?, named("Share ID")?, named("Share value")?)
    }
}

impl std::fmt::Debug for PasswordShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PasswordShare({}, secret)", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_of_three_make_the_password() {
        let (password, shares) = split(2, 3).unwrap();
        for pair in [[0, 1], [1, 2], [2, 0]] {
            let pair = pair.map(|at: usize| shares[at].clone());
            assert_eq!(*combine(&pair).unwrap(), *password);
        }
        assert_eq!(*combine(&shares).unwrap(), *password);
        assert_ne!(*combine(&shares[..1]).unwrap(), *password);
    }

    #[test]
    fn shares_survive_paper() {
        let (password, shares) = split(3, 12).unwrap();
        let read = |share: &PasswordShare| share.to_text().parse::<PasswordShare>().unwrap();
        let read: Vec<_> = shares[9..].iter().map(read).collect();
        assert_eq!(*combine(&read).unwrap(), *password);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (needed, total) in [(1, 3), (2, 2), (4, 3), (0, 0)] {
            assert!(split(needed, total).is_err(), "{needed} of {total}");
        }
        let (_, one) = split(2, 3).unwrap();
        let (_, other) = split(2, 3).unwrap();
        let mixed = [one[0].clone(), other[1].clone()];
        let twice = [one[0].clone(), one[0].clone()];
        for shares in [&mixed[..], &twice, &[]] {
            assert!(combine(shares).is_err());
        }
        for text in ["", "Prime: 7", "Prime: 8\nShare ID: 1\nShare value: 1"] {
            assert!(text.parse::<PasswordShare>().is_err(), "{text}");
        }
    }
}
