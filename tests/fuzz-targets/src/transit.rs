//! What clients of the broker send.

use hsmux_broker::fuzzing;

/// `vault:v1:...`, names of keys and signatures.
pub fn vault(input: &[u8]) {
    fuzzing::signature(input);
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Some((version, bytes)) = fuzzing::sealed(text) {
        assert!(version > 0);
        assert!(bytes.len() <= text.len());
        let written = fuzzing::write_sealed(version, &bytes);
        assert_eq!(fuzzing::sealed(&written), Some((version, bytes)));
    }
    fuzzing::key_name(text);
}

/// Bodies of requests that may be batches.
pub fn batches(input: &[u8]) {
    if let Some(items) = fuzzing::batch(input) {
        assert!(items <= fuzzing::MOST_ITEMS);
    }
}
