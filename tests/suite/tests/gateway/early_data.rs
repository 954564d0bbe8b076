//! 0-RTT is off, because early data can be replayed (RFC 8446, section 8).

use std::fs;

use crate::rig::{ASK, Gateway};

/// A gateway, with a session of TLS 1.3 in the file `session` and a request in the file `early`. Also the output of the
/// client that began the session.
fn begun() -> (Gateway, String) {
    let gateway = Gateway::with_folder();
    fs::write(gateway.rig.path("early"), ASK).expect("a request");
    let said = gateway.s_client("-tls1_3 -sess_out session", ASK);
    assert!(said.contains("a page"), "{said}");
    (gateway, said)
}

/// Resumes the session of a file, with the request as early data if the session allows it, and once more afterwards.
/// Returns the client's output.
fn resume(gateway: &Gateway, session: &str) -> String {
    let before = gateway.metric("hsmux_gateway_requests_total");
    let options = format!("-tls1_3 -sess_in {session} -early_data early");
    let said = gateway.s_client(&options, ASK);
    assert!(said.contains("Reused, TLSv1.3"), "{said}");
    assert_eq!(said.matches("a page").count(), 1, "{said}");
    let asked = gateway.metric("hsmux_gateway_requests_total") - before;
    assert_eq!(asked, 1, "{said}");
    said
}

#[test]
fn tickets_allow_no_early_data() {
    let (gateway, said) = begun();
    let limits = said.lines().filter(|line| line.contains("Max Early Data:"));
    let limits: Vec<_> = limits.map(str::trim).collect();
    let none = limits.iter().all(|limit| *limit == "Max Early Data: 0");
    assert!(none && !limits.is_empty(), "{said}");
    let said = resume(&gateway, "session");
    assert!(said.contains("Early data was not sent"), "{said}");
}

#[test]
fn unsolicited_early_data_is_rejected() {
    let (gateway, _) = begun();
    let openssl = |line: &str| gateway.rig.run("openssl").args(line).ok();
    openssl("sess_id -in session -outform DER -out session.der");
    let session = fs::read(gateway.rig.path("session.der")).expect("a session");
    fs::write(gateway.rig.path("forged.der"), forge(&session)).expect("a session");
    openssl("sess_id -in forged.der -inform DER -out forged");
    let said = resume(&gateway, "forged");
    assert!(said.contains("Early data was rejected"), "{said}");
}

/// `[15] max_early_data INTEGER` in OpenSSL's SSL_SESSION, here 16384. It is missing if it is 0.
const ALLOWED: [u8; 6] = [0xaf, 4, 2, 2, 0x40, 0];

/// Changes a session (DER) to allow early data.
fn forge(session: &[u8]) -> Vec<u8> {
    let fields = &session[element(session).0..];
    let mut place = 0;
    while place < fields.len() && fields[place] < ALLOWED[0] {
        let (head, value) = element(&fields[place..]);
        place += head + value;
    }
    let fields = [&fields[..place], &ALLOWED, &fields[place..]].concat();
    let length = u16::try_from(fields.len()).expect("a short session");
    [&[0x30, 0x82][..], &length.to_be_bytes(), &fields].concat()
}

/// Length of an element's tag and length field, and length of its value.
fn element(der: &[u8]) -> (usize, usize) {
    match der[1] {
        0x82 => (4, u16::from_be_bytes([der[2], der[3]]).into()),
        0x81 => (3, der[2].into()),
        short => (2, short.into()),
    }
}
