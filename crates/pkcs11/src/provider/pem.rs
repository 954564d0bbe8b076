//! The next block of a PEM file, line by line.

use zeroize::Zeroizing;

/// A block.
#[derive(PartialEq, Eq, Debug)]
pub struct PemBlock {
    /// The label behind BEGIN.
    pub label: String,
    /// The lines between, if it is of the label that was asked for.
    pub body: String,
}

/// Reads up to the end of the next block and no further: what follows is the next one's to read.
///
/// `line` gives a line each time, and none at the end. The lines of other blocks, which may be keys, are not kept.
pub fn next(wanted: &str, mut line: impl FnMut() -> Option<Zeroizing<String>>) -> Option<PemBlock> {
    let label = loop {
        if let Some(label) = boundary(&line()?, "BEGIN") {
            break label.to_owned();
        }
    };
    let mut body = String::new();
    loop {
        let line = line()?;
        if boundary(&line, "END") == Some(&label) {
            return Some(PemBlock { label, body });
        }
        if label == wanted {
            body += &line;
        }
    }
}

fn boundary<'l>(line: &'l str, word: &str) -> Option<&'l str> {
    let rest = line.trim_end().strip_prefix("-----")?;
    rest.strip_prefix(word)?
        .strip_prefix(' ')?
        .strip_suffix("-----")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "a certificate\n\
        -----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n\
        -----BEGIN THING-----\nBBBB\r\nCC==\r\n-----END THING-----\r\n\
        -----BEGIN CUT-----\nDDDD\n";

    #[test]
    fn blocks_come_one_after_the_other() {
        let mut lines = FILE.split_inclusive('\n');
        let mut next = || {
            let line = || lines.next().map(|line| Zeroizing::new(line.to_owned()));
            next("THING", line)
        };
        let block = |label: &str, body: &str| {
            Some(PemBlock {
                label: label.into(),
                body: body.into(),
            })
        };
        assert_eq!(next(), block("CERTIFICATE", ""), "another's is not kept");
        assert_eq!(next(), block("THING", "BBBB\r\nCC==\r\n"));
        assert_eq!(next(), None, "one without an end");
        assert_eq!(next(), None);
    }
}
