//! What comes to the gateway before a site is chosen.

use hsmux_gateway::fuzzing;

/// The host that a request names.
pub fn hosts(input: &[u8]) {
    fuzzing::host(input);
}

/// Headers of the PROXY protocol.
pub fn proxy(input: &[u8]) {
    let Some((address, read)) = fuzzing::proxy(input) else {
        return;
    };
    assert!(read <= input.len());
    if let Some(address) = address {
        for header in fuzzing::write_proxy(address) {
            let followed = [&header, &b"GET"[..]].concat();
            assert_eq!(
                fuzzing::proxy(&followed),
                Some((Some(address), header.len()))
            );
        }
    }
}
