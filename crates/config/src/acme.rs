//! Where ACME's challenges are answered: for the whole gateway, or for one site.

use std::path::PathBuf;

use super::reader::{ExternalReference, Fields, text};
use super::site_backends::{Scheme, backend};

/// Where ACME's challenges are answered (RFC 8555, section 8.3).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Acme {
    /// A folder that an ACME client writes them into.
    Folder(PathBuf),
    /// The host and port of an ACME client that listens itself.
    Client(String),
}

/// The error for challenges without an address for plain HTTP.
pub const NO_HTTP: &str =
    "acme: challenges come over plain HTTP: give the port, [gateway] http = [\"0.0.0.0:80\"]";

pub fn acme(fields: &mut Fields<'_, '_, '_>) -> Option<Acme> {
    let read = fields.read("acme", |value| match text(value)? {
        "" => Err("the path is empty".into()),
        url if url.contains("://") => match backend(url) {
            Ok(client) if client.scheme == Scheme::Http => Ok(Acme::Client(client.authority())),
            _ => Err(format!("{url:?} is neither http://HOST:PORT nor a folder")),
        },
        folder => Ok(Acme::Folder(folder.into())),
    });
    match read? {
        Acme::Folder(folder) => {
            let folder = fields.source.path(&folder.to_string_lossy());
            fields.names("acme", ExternalReference::File(folder.clone()));
            Some(Acme::Folder(folder))
        }
        client @ Acme::Client(_) => Some(client),
    }
}
