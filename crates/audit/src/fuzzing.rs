//! Entry for fuzz targets: a trail in memory.

use std::path::Path;

use crate::keys::PublicKey;
use crate::verify::{self, TrustAnchors, VerificationReport};

/// Verifies these lines with the key that signed them.
pub fn verify(lines: &[u8], key: &PublicKey) -> VerificationReport {
    let known = TrustAnchors {
        keys: vec![key.clone()],
        ..TrustAnchors::default()
    };
    verify::verify_lines(lines, Path::new("audit.log"), known).expect("memory can be read")
}

/// The lines before the last valid signature.
pub fn signed<'a>(lines: &'a [u8], report: &VerificationReport) -> Vec<&'a [u8]> {
    let (Some(first), Some(last)) = (report.first, report.signed_to) else {
        return Vec::new();
    };
    let vouched = |line: &&[u8]| {
        let number = verify::parse_chained(line).map(|parsed| parsed.seq);
        number.is_some_and(|seq| (first..=last).contains(&seq))
    };
    lines.split(|byte| *byte == b'\n').filter(vouched).collect()
}
