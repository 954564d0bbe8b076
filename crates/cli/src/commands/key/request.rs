//! `hsmux key csr`, `hsmux key reference`: texts in PEM.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use hsmux_daemon::admin::{AdminRequest, AdminResponse};
use hsmux_software::reference;

use super::KeyChoice;
use crate::commands::show;
use crate::context::Context;
use crate::exit::Exit;

/// Options of `hsmux key csr`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    hsmux key csr --label web --subject 'CN=www.example.com,O=Example' \\\n    \
      --name www.example.com --name example.com --out web.csr")]
pub struct Csr {
    #[command(flatten)]
    choice: KeyChoice,
    /// The distinguished name (RFC 4514)
    #[arg(long, value_name = "NAME")]
    subject: String,
    /// A DNS name, address, mail address or URI for subjectAltName; may be repeated
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Options of `hsmux key reference`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    hsmux key reference 'pkcs11:token=keys;object=web' >> /etc/haproxy/web.pem\n\n\
    The file names the key and has no secret. OpenSSL 3 reads it if libhsmux_pkcs11.so is one of its\n\
    providers (docs/servers.md). The command needs no daemon, so it works on any host.")]
pub struct Reference {
    #[command(flatten)]
    choice: KeyChoice,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Csr {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let key = self.choice.required()?.to_string();
        let about = format!("certification request of {:?} by {key}", self.subject);
        let request = AdminRequest::KeyCsr {
            key,
            subject: self.subject,
            names: self.names,
        };
        give(context, context.ask(&request)?, self.out, &about)
    }
}

impl Reference {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let key = self.choice.required()?;
        let pem = reference::to_pem(&key)?;
        let about = format!("reference to {key}");
        give(context, AdminResponse::Text(pem), self.out, &about)
    }
}

/// Writes a text to a file, if given, and reports that.
fn give(
    context: &Context,
    response: AdminResponse,
    out: Option<PathBuf>,
    about: &str,
) -> anyhow::Result<Exit> {
    match (response, out) {
        (AdminResponse::Text(pem), Some(file)) => {
            std::fs::write(&file, pem).with_context(|| file.display().to_string())?;
            if !context.json {
                println!("wrote {}: {about}", file.display());
            }
            Ok(Exit::Done)
        }
        (response, _) => show(context, response),
    }
}
