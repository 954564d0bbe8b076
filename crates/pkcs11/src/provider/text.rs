//! A key in words and numbers, as `openssl pkey -text` prints those of OpenSSL's own provider.

use std::fmt::Write;

use hsmux_software::PublicValues;

use super::key::ProviderKey;
use super::names;

/// Octets in a line.
const WIDTH: usize = 15;

/// The public values, and for a private key where that is.
pub fn of(key: &ProviderKey) -> String {
    let bits = key.public.bits();
    let mut text = match &key.private {
        Some(private) => format!(
            "Private-Key: ({bits} bit)\nThe private key stays in the pool: {}\n",
            private.uri()
        ),
        None => format!("Public-Key: ({bits} bit)\n"),
    };
    match key.public.values() {
        PublicValues::Rsa { modulus, exponent } => {
            number(&mut text, "Modulus", &modulus);
            number(&mut text, "Exponent", &exponent);
        }
        PublicValues::Point(point) => {
            octets(&mut text, "pub", point);
            if let Ok(curve) = key.public.curve() {
                let name = names::of_curve(curve);
                let _ = writeln!(text, "ASN1 OID: {name}");
                if name != curve {
                    let _ = writeln!(text, "NIST CURVE: {curve}");
                }
            }
        }
    }
    text
}

/// A positive number: in decimal if it is a short one.
fn number(text: &mut String, name: &str, bytes: &[u8]) {
    if bytes.len() <= size_of::<u64>() {
        let number = bytes
            .iter()
            .fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
        let _ = writeln!(text, "{name}: {number} ({number:#x})");
    } else if bytes[0] & 0x80 == 0 {
        octets(text, name, bytes);
    } else {
        octets(text, name, &[&[0], bytes].concat());
    }
}

fn octets(text: &mut String, name: &str, bytes: &[u8]) {
    let _ = write!(text, "{name}:");
    for (at, byte) in bytes.iter().enumerate() {
        if at % WIDTH == 0 {
            text.push_str("\n    ");
        }
        let colon = if at + 1 < bytes.len() { ":" } else { "" };
        let _ = write!(text, "{byte:02x}{colon}");
    }
    text.push('\n');
}
