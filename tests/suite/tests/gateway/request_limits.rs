//! Limits of a request's head and of concurrent requests.

use std::io::{Read, Write};

use hsmux_suite::Http2Settings;

use crate::h2::PREFACE;
use crate::hosts::connect;
use crate::rig::Gateway;

#[test]
fn heads_and_concurrent_requests_are_limited() {
    let gateway = Gateway::with_folder();
    // hyper may read half as much again as 64 KiB at once.
    for (length, is_taken) in [(60_000, true), (110_000, false)] {
        let field = "x".repeat(length);
        let request = format!(
            "GET /page.txt HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nX-Long: {field}\r\n\r\n"
        );
        let mut client = connect(&gateway, "a.test", "http/1.1");
        let mut begin = [0; 12];
        // The gateway may reset the connection instead of reading on.
        let said = client.write_all(request.as_bytes());
        let said = said.and_then(|()| client.read_exact(&mut begin));
        assert_eq!(
            said.is_ok() && begin == *b"HTTP/1.1 200",
            is_taken,
            "{length}"
        );
    }
    let mut client = connect(&gateway, "a.test", "h2");
    client.write_all(PREFACE).expect("a preface");
    let settings = Http2Settings::read(&mut client);
    assert_eq!(settings.longest_head(), Some(16 << 10));
    assert_eq!(settings.requests_at_once(), Some(100));
}
