//! Sources of PINs. The configuration has only the source; the PIN itself is read when it is needed.

use std::path::{Path, PathBuf};

use hsmux_token::permissions::SecretReaders;
use hsmux_token::{Error, Kind, Result, Secret};

/// The source of a PIN.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PinSource {
    /// A file; one newline at its end is not part of the PIN.
    File(PathBuf),
    /// An environment variable.
    Env(String),
    /// A systemd credential: a file of that name in `$CREDENTIALS_DIRECTORY` (systemd.exec(5)).
    Credential(String),
}

impl PinSource {
    /// Reads the PIN.
    pub fn read(&self) -> Result<Secret> {
        let bytes = match self {
            Self::Env(name) => std::env::var_os(name)
                .ok_or_else(|| missing(&format!("the environment variable ${name} is not set")))?
                .into_encoded_bytes(),
            Self::File(path) => read(path, SecretReaders::Owner)?,
            Self::Credential(name) => read(&credential(name)?, SecretReaders::Group)?,
        };
        let secret = Secret::new(bytes);
        let line = secret.expose();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Err(missing(&format!("{self}: the PIN is empty")));
        }
        Ok(Secret::new(line.to_vec()))
    }

    /// The file of the source, if any.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Self::File(path) => Some(path.clone()),
            Self::Env(_) => None,
            Self::Credential(name) => credential(name).ok(),
        }
    }
}

impl std::fmt::Display for PinSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "PIN file {}", path.display()),
            Self::Env(name) => write!(f, "PIN in ${name}"),
            Self::Credential(name) => write!(f, "PIN credential {name}"),
        }
    }
}

fn credential(name: &str) -> Result<PathBuf> {
    let folder = std::env::var_os("CREDENTIALS_DIRECTORY").ok_or_else(|| {
        missing(&format!(
            "the credential {name} needs $CREDENTIALS_DIRECTORY, which systemd sets; \
             add LoadCredential={name}:... to the unit"
        ))
    })?;
    Ok(Path::new(&folder).join(name))
}

fn read(path: &Path, readers: SecretReaders) -> Result<Vec<u8>> {
    let read = readers.read(path).map_err(|e| match e.raw_os_error() {
        Some(_) => missing(&format!("cannot read {}: {e}", path.display())),
        None => missing(&e.to_string()),
    });
    read.map(|mut bytes| std::mem::take(&mut *bytes))
}

fn missing(message: &str) -> Error {
    Error::pool(Kind::Environment, message)
}
