//! The text form of DER (RFC 7468).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// One block, with lines of 64 characters.
pub fn encode(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let body: Vec<_> = lines.collect();
    let body = body.join("\n");
    format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
}

/// The DER of a block's lines, without those that begin and end it; `None` if they are not base64.
pub fn decode(body: &str) -> Option<Vec<u8>> {
    let body: String = body.split_whitespace().collect();
    STANDARD.decode(body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let der: Vec<u8> = (0..100).collect();
        let text = encode("THING", &der);
        let body = text.strip_prefix("-----BEGIN THING-----\n").unwrap();
        let body = body.strip_suffix("-----END THING-----\n").unwrap();
        assert!(body.lines().all(|line| line.len() <= 64));
        assert_eq!(decode(body), Some(der));
        assert_eq!(decode("not base64!"), None);
    }
}
