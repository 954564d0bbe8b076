//! Words for a file that could not be used.

use std::io;
use std::path::Path;

use hsmux_token::{Error, Kind};
use rustix::io::Errno;

/// An error of the pool: what was done (`write`), on which file or folder, why it failed, and the remedy.
#[must_use]
pub fn failed(doing: &str, path: &Path, error: &io::Error) -> Error {
    let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => ": make room there",
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => ": the state folder has to be writable",
        _ => "",
    };
    let message = format!("{doing} {}: {error}{remedy}", path.display());
    Error::pool(Kind::Environment, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_is_named_where_there_is_one() {
        let said = |errno: Errno| {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            failed("write", Path::new("/state/a"), &error).to_string()
        };
        assert!(said(Errno::NOSPC).contains("write /state/a: No space left"));
        assert!(said(Errno::NOSPC).ends_with("make room there"));
        assert!(said(Errno::ROFS).ends_with("has to be writable"));
        assert!(said(Errno::IO).ends_with("(os error 5)"));
    }
}
