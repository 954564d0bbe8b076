//! Percent-encoding (RFC 7512, section 2.3; RFC 3986, section 2.1).

use std::fmt::{self, Write as _};

/// What is wrong with a value: the offset in it, and why.
pub type Fault = (usize, &'static str);

/// The bytes that a value stands for.
pub fn decoded(value: &str) -> Result<Vec<u8>, Fault> {
    let bytes = value.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let digits = value.get(at + 1..at + 3);
                let byte = digits
                    .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok())
                    .ok_or((at, "'%' is not followed by two hexadecimal digits"))?;
                out.push(byte);
                at += 3;
            }
            b' ' => return Err((at, "a space is written %20")),
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
    Ok(out)
}

/// `bare`: letters and digits stand for themselves; without it every byte is written in hexadecimal.
pub fn encoded(f: &mut fmt::Formatter<'_>, value: &[u8], bare: bool) -> fmt::Result {
    for &byte in value {
        if bare && (byte.is_ascii_alphanumeric() || b"-._~:@/+".contains(&byte)) {
            f.write_char(char::from(byte))?;
        } else {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}
