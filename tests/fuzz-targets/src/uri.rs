//! PKCS#11 URIs.

use hsmux_token::Uri;

/// What is read is written and read as the same; what is not says no PIN.
pub fn uris(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match text.parse::<Uri>() {
        Ok(uri) => {
            let written = uri.to_string();
            assert_eq!(written.parse().as_ref(), Ok(&uri), "{written}");
            let bytes = minicbor::to_vec(&uri).expect("memory has room");
            assert_eq!(minicbor::decode::<Uri>(&bytes).ok(), Some(uri));
        }
        Err(error) => {
            assert!(error.position >= 1 && error.position <= text.chars().count() + 1);
            says_no_pin(text, &error.to_string());
        }
    }
}

/// Shorter values are in every text.
const LEAST: usize = 6;
const NAME: &str = "pin-value=";

fn says_no_pin(text: &str, said: &str) {
    let Some(start) = text.find(NAME).map(|at| at + NAME.len()) else {
        return;
    };
    let (before, after) = text.split_at(start);
    let (pin, after) = after.split_once('&').unwrap_or((after, ""));
    let elsewhere = before.contains(pin) || after.contains(pin);
    let whole = pin.len() >= LEAST && pin.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !whole || elsewhere || !said.contains(pin) {
        return;
    }
    // Unless the error is the same with any other PIN: it lists the attributes that there are.
    let other = text.replacen(pin, &"0".repeat(pin.len()), 1);
    let error = other.parse::<Uri>().map_err(|error| error.to_string());
    assert_eq!(error.err().as_deref(), Some(said));
}
