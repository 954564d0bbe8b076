//! `access_log` and `access_log_format`, of `[gateway]` and of `[broker]`.

use std::fmt;
use std::path::PathBuf;

use super::reader::{ExternalReference, Fields, text};

/// Where requests are logged, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessLog {
    /// Where lines go.
    pub target: AccessLogTarget,
    /// Their format.
    pub format: AccessLogFormat,
}

/// Where lines of an access log go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AccessLogTarget {
    /// Standard error, as the daemon's own log.
    Journal,
    /// A file.
    File(PathBuf),
}

/// For messages.
impl fmt::Display for AccessLogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal => f.write_str("the journal"),
            Self::File(file) => file.display().fmt(f),
        }
    }
}

/// The format of an access log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessLogFormat {
    /// One JSON object a line.
    Json,
    /// The combined format of NCSA's server.
    Combined,
}

/// `None`: off.
pub fn access_log(fields: &mut Fields<'_, '_, '_>) -> Option<AccessLog> {
    let words = [
        ("json", AccessLogFormat::Json),
        ("combined", AccessLogFormat::Combined),
    ];
    let format = fields.choice("access_log_format", &words);
    if fields.has("access_log_format") && !fields.has("access_log") {
        let message = "access_log_format is the format of access_log: set access_log as well";
        let span = fields.span_of("access_log_format");
        fields.source.error(span, message);
    }
    let to = fields.read("access_log", |value| match text(value)? {
        "" => Err("it is neither \"off\" nor \"journal\" nor a file".into()),
        text => Ok(text.to_owned()),
    })?;
    let target = match to.as_str() {
        "off" => return None,
        "journal" => AccessLogTarget::Journal,
        file => {
            let file = fields.source.path(file);
            let named = ExternalReference::AppendedFile(file.clone());
            fields.names("access_log", named);
            AccessLogTarget::File(file)
        }
    };
    Some(AccessLog {
        target,
        format: format.unwrap_or(AccessLogFormat::Json),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Mistake, check, parse};

    fn broker(lines: &str) -> String {
        format!(
            "[pool]\nlabel = \"x\"\n[[token]]\nmodule = \"vendor.so\"\nuri = \"pkcs11:token=a\"\n\
             [broker]\nlisten = [\"127.0.0.1:0\"]\n{lines}\n"
        )
    }

    fn read(lines: &str) -> Result<Option<AccessLog>, Vec<Mistake>> {
        let config = parse(Path::new("/etc/hsmux/hsmux.toml"), &broker(lines))?;
        Ok(config.broker.expect("a broker").access_log)
    }

    #[test]
    fn it_is_off_by_default() {
        for off in [
            "",
            "access_log = \"off\"",
            "access_log = \"off\"\naccess_log_format = \"combined\"",
        ] {
            assert_eq!(read(off).unwrap(), None, "{off}");
        }
        let journal = AccessLog {
            target: AccessLogTarget::Journal,
            format: AccessLogFormat::Json,
        };
        assert_eq!(read("access_log = \"journal\"").unwrap(), Some(journal));
        let file = AccessLog {
            target: AccessLogTarget::File("/etc/hsmux/access.log".into()),
            format: AccessLogFormat::Combined,
        };
        let lines = "access_log = \"access.log\"\naccess_log_format = \"combined\"";
        assert_eq!(read(lines).unwrap(), Some(file));
    }

    #[test]
    fn mistakes_are_named() {
        for (lines, words) in [
            ("access_log = \"\"", "neither \"off\" nor"),
            ("access_log = true", "expected text in quotes"),
            (
                "access_log_format = \"json\"",
                "access_log_format is the format of access_log",
            ),
            (
                "access_log = \"journal\"\naccess_log_format = \"jsn\"",
                "did you mean \"json\"?",
            ),
        ] {
            let mistakes = read(lines).unwrap_err();
            let found = mistakes.iter().any(|one| one.message.contains(words));
            assert!(found, "{lines}: {mistakes:#?}");
        }
    }

    #[test]
    fn the_folder_of_the_file_has_to_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hsmux.toml");
        let complaints = |log: &str| {
            std::fs::write(&file, broker(&format!("access_log = \"{log}\""))).unwrap();
            let found = check(&file).into_iter();
            let of_log = found.filter(|one| one.message.starts_with("access_log"));
            of_log.collect::<Vec<_>>()
        };
        assert_eq!(complaints("access.log"), []);
        let [missing] = &complaints("none/access.log")[..] else {
            panic!("no complaint");
        };
        assert!(missing.is_error(), "{missing}");
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        let [no_file] = &complaints("logs")[..] else {
            panic!("no complaint");
        };
        assert!(no_file.message.contains("not a regular file"), "{no_file}");
    }
}
