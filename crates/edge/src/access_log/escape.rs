//! Text of clients, bounded and escaped: no client can begin a line or a field of its own.

use std::fmt::Write as _;

/// The end of a text that was cut.
const CUT: &str = "...";

/// Appends the inside of a JSON string (RFC 8259, section 7), in ASCII, of at most `most` bytes and [`CUT`].
pub fn json(to: &mut String, value: &[u8], most: usize) {
    let mut bounded = BoundedText::new(to, most);
    for chunk in value.utf8_chunks() {
        for c in chunk.valid().chars() {
            let fits = bounded.add(|to| match c {
                '"' | '\\' => to.extend(['\\', c]),
                ' '..='~' => to.push(c),
                _ => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string cannot fail.
                        let _ = write!(to, "\\u{unit:04x}");
                    }
                }
            });
            if !fits {
                return;
            }
        }
        if !chunk.invalid().is_empty() && !bounded.add(|to| to.push_str("\\ufffd")) {
            return;
        }
    }
}

/// Appends a text for quotes, as Apache escapes it, of at most `most` bytes and [`CUT`]; `-` in place of none.
pub fn quoted(to: &mut String, value: &[u8], most: usize) {
    combined(to, value, most, |byte| matches!(byte, b' '..=b'~'));
}

/// The same for a place without quotes, where a space would end it.
pub fn word(to: &mut String, value: &[u8], most: usize) {
    combined(to, value, most, |byte| byte.is_ascii_graphic());
}

fn combined(to: &mut String, value: &[u8], most: usize, is_plain: impl Fn(u8) -> bool) {
    if value.is_empty() {
        return to.push('-');
    }
    let mut bounded = BoundedText::new(to, most);
    for byte in value {
        let fits = bounded.add(|to| match byte {
            b'"' | b'\\' => to.extend(['\\', char::from(*byte)]),
            byte if is_plain(*byte) => to.push(char::from(*byte)),
            byte => {
                let _ = write!(to, "\\x{byte:02x}");
            }
        });
        if !fits {
            return;
        }
    }
}

/// Appends pieces up to a length. A piece is there as a whole, or not at all.
struct BoundedText<'a> {
    text: &'a mut String,
    end: usize,
}

impl<'a> BoundedText<'a> {
    fn new(text: &'a mut String, most: usize) -> Self {
        let end = text.len() + most;
        Self { text, end }
    }

    /// `false`: it does not fit, and the text has its end.
    fn add(&mut self, piece: impl FnOnce(&mut String)) -> bool {
        let before = self.text.len();
        piece(self.text);
        let fits = self.text.len() <= self.end;
        if !fits {
            self.text.truncate(before);
            self.text.push_str(CUT);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(escape: fn(&mut String, &[u8], usize), value: &[u8], most: usize) -> String {
        let mut text = String::new();
        escape(&mut text, value, most);
        text
    }

    #[test]
    fn no_line_and_no_field_can_be_forged() {
        let hostile = "a\"b\\c\nd\re\tf\0g\x1bh\u{7f}i\u{85}j\u{202e}kä🔑".as_bytes();
        let hostile = [hostile, b"\xff\xc3"].concat();
        let json = escaped(json, &hostile, 1000);
        assert_eq!(
            json,
            "a\\\"b\\\\c\\u000ad\\u000de\\u0009f\\u0000g\\u001bh\\u007fi\\u0085j\\u202ek\\u00e4\\ud83d\\udd11\
             \\ufffd\\ufffd"
        );
        let combined = escaped(quoted, &hostile, 1000);
        assert_eq!(
            combined,
            "a\\\"b\\\\c\\x0ad\\x0de\\x09f\\x00g\\x1bh\\x7fi\\xc2\\x85j\\xe2\\x80\\xaek\\xc3\\xa4\\xf0\\x9f\\x94\\x91\
             \\xff\\xc3"
        );
        assert_eq!(escaped(word, b"CN=my app", 1000), "CN=my\\x20app");
        assert_eq!(escaped(quoted, b"", 1000), "-");
    }

    #[test]
    fn a_text_has_a_length() {
        assert_eq!(escaped(json, b"abcd", 4), "abcd");
        assert_eq!(escaped(json, b"abcde", 4), "abcd...");
        // An escape is not cut in two.
        assert_eq!(escaped(json, b"abc\n", 8), "abc...");
        assert_eq!(escaped(quoted, b"abc\n", 6), "abc...");
        let long = vec![0xff; 1 << 20];
        assert_eq!(escaped(json, &long, 12), "\\ufffd\\ufffd...");
    }
}
