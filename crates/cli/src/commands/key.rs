//! `hsmux key`.

mod delete;
mod request;
mod table;

use std::path::PathBuf;

use anyhow::Context as _;
use base64::Engine;
use clap::{Args, Subcommand};
use hsmux_console::key_choice::{WrappingKey, hexadecimal};
use hsmux_daemon::admin::{AdminClient, AdminRequest, AdminResponse, KeyRow, KeySpec};

use super::show as show_response;
use crate::context::Context;
use crate::exit::Exit;
use crate::progress;

pub use delete::Delete;
pub use hsmux_console::key_choice::{KeyChoice, KeyParts};
pub use request::{Csr, Reference};
pub use table::show;

/// Commands for keys and certificates. Keys are named by PKCS#11 URIs (RFC 7512).
#[derive(Subcommand, Debug)]
pub enum KeyCommand {
    /// List keys, certificates and data objects with their replicas
    #[command(after_help = "Examples:\n  \
        hsmux key list\n  \
        hsmux key list --json")]
    List,
    /// Generate a key on the members, which never leaves them in clear text
    Generate(Generate),
    /// Copy keys to members that lack them
    Clone(Box<Clone>),
    /// Verify all replicas by new proofs
    #[command(after_help = "Examples:\n  \
        hsmux key verify\n  \
        hsmux key verify --label web\n\n\
        Exit code 3 if a replica fails its proof or is missing.")]
    Verify(KeyChoice),
    /// Delete objects from all members
    Delete(Delete),
    /// Create a certification request (PKCS#10) with a key
    Csr(Csr),
    /// Write a PEM reference to a key, for a server's PEM file in place of a private key
    Reference(Box<Reference>),
    /// Certificates
    #[command(subcommand)]
    Cert(Cert),
}

/// Options of `hsmux key generate`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux key generate ec:p256 --label web\n  \
    hsmux key generate rsa:3072 --label mail --id 0a\n  \
    hsmux key generate aes:256 --label backup")]
pub struct Generate {
    /// rsa:BITS, ec:CURVE, ed25519, aes:BITS or generic:BITS
    spec: KeySpec,
    /// CKA_LABEL
    #[arg(long)]
    label: String,
    /// CKA_ID in hexadecimal [default: random]
    #[arg(long, value_name = "HEX", value_parser = hexadecimal)]
    id: Option<String>,
}

/// Options of `hsmux key clone`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux key clone                                  # all keys to all members\n  \
    hsmux key clone --label web --to hsm3\n  \
    hsmux key clone --from hsm1 --to hsm2 --to hsm3\n  \
    hsmux key clone --from hsm1 --to hsm2 --wrapping-label kek\n\n\
    A key is copied wrapped under the public key of the target, or under an AES key that both members hold\n\
    (--wrapping-key, --wrapping-label or --wrapping-id).")]
pub struct Clone {
    #[command(flatten)]
    choice: KeyChoice,
    /// The member to copy from [default: one that holds the key]
    #[arg(long, value_name = "MEMBER")]
    from: Option<String>,
    /// A member to copy to; may be repeated [default: all others]
    #[arg(long, value_name = "MEMBER")]
    to: Vec<String>,
    #[command(flatten)]
    wrapping: WrappingKey,
}

/// Commands for certificates.
#[derive(Subcommand, Debug)]
pub enum Cert {
    /// Write a certificate (PEM or DER) to all members
    #[command(after_help = "Example:\n  hsmux key cert import web.crt")]
    Import {
        /// The certificate
        file: PathBuf,
        /// CKA_LABEL [default: that of its key, else its subject]
        #[arg(long)]
        label: Option<String>,
        /// CKA_ID in hexadecimal [default: that of its key]
        #[arg(long, value_name = "HEX", value_parser = hexadecimal)]
        id: Option<String>,
    },
}

impl KeyCommand {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Self::List => ask(context, "reading", &AdminRequest::Keys),
            Self::Generate(Generate { spec, label, id }) => {
                let request = AdminRequest::KeyGenerate { spec, label, id };
                ask(context, "making the key on the members", &request)
            }
            Self::Clone(clone) => clone.run(context),
            Self::Verify(choice) => verify(context, &choice),
            Self::Delete(delete) => delete.run(context),
            Self::Csr(csr) => csr.run(context),
            Self::Reference(reference) => reference.run(context),
            Self::Cert(Cert::Import { file, label, id }) => {
                let der = hex::encode(certificate(&file)?);
                let request = AdminRequest::CertImport { der, label, id };
                ask(context, "writing the certificate", &request)
            }
        }
    }
}

fn ask(context: &Context, doing: &str, request: &AdminRequest) -> anyhow::Result<Exit> {
    let admin = context.admin()?;
    let waiting = progress::spinner(doing);
    let answer = admin.ask(request);
    waiting.finish_and_clear();
    show_response(context, answer?)
}

fn keys(admin: &AdminClient, request: &AdminRequest) -> anyhow::Result<Vec<KeyRow>> {
    match admin.ask(request)? {
        AdminResponse::Keys(rows) => Ok(rows),
        _ => anyhow::bail!("the daemon answered something else"),
    }
}

fn verify(context: &Context, choice: &KeyChoice) -> anyhow::Result<Exit> {
    let key = choice.uri()?.map(|uri| uri.to_string());
    let admin = context.admin()?;
    let waiting = progress::spinner("proving all replicas");
    let rows = keys(&admin, &AdminRequest::KeyVerify { key });
    waiting.finish_and_clear();
    let rows = rows?;
    show(context, &rows)?;
    let complete = table::complete(&rows);
    if !context.json {
        for fault in table::absent(&rows) {
            println!("{fault}");
        }
        if complete {
            println!("every replica has proved itself");
        }
    }
    Ok(if complete { Exit::Done } else { Exit::Degraded })
}

impl Clone {
    /// One request for each key, to show progress.
    fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let choice = self.choice.uri()?;
        let wrapping = self.wrapping.uri()?.map(|uri| uri.to_string());
        let admin = context.admin()?;
        let whole = match choice {
            Some(uri) => vec![uri.to_string()],
            None => incomplete(&admin)?,
        };
        let bar = progress::bar(whole.len() as u64, "copying");
        let (mut lines, mut failures) = (Vec::new(), Vec::new());
        for key in whole {
            let request = AdminRequest::KeyClone {
                key: Some(key.clone()),
                from: self.from.clone(),
                to: self.to.clone(),
                wrapping_key: wrapping.clone(),
            };
            match admin.ask(&request) {
                Ok(AdminResponse::Lines(done)) => lines.extend(done),
                Ok(_) => {}
                Err(failure) => failures.push(format!("{key}: {failure}")),
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        if lines.is_empty() && failures.is_empty() {
            lines.push("every member holds every key already".into());
        }
        if !lines.is_empty() {
            show_response(context, AdminResponse::Lines(lines))?;
        }
        anyhow::ensure!(failures.is_empty(), "{}", failures.join("\n"));
        Ok(Exit::Done)
    }
}

/// Keys that some member in service lacks. Their public keys and certificates are copied with them.
fn incomplete(admin: &AdminClient) -> anyhow::Result<Vec<String>> {
    let mut rows = keys(admin, &AdminRequest::Keys)?;
    rows.retain(|row| {
        let class = row.object.class.as_str();
        matches!(class, "private key" | "secret key") && !row.missing.is_empty()
    });
    Ok(rows.into_iter().map(|row| row.uri).collect())
}

/// The DER of a certificate in DER or PEM (RFC 7468).
fn certificate(file: &std::path::Path) -> anyhow::Result<Vec<u8>> {
    let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return Ok(bytes);
    };
    let body = text
        .split_once("-----BEGIN CERTIFICATE-----")
        .and_then(|(_, rest)| rest.split_once("-----END CERTIFICATE-----"))
        .with_context(|| {
            let file = file.display();
            format!("{file}: no certificate in it; openssl x509 -in {file} -noout -subject has to show one")
        })?;
    let body: String = body.0.split_whitespace().collect();
    let der = base64::engine::general_purpose::STANDARD.decode(body);
    der.with_context(|| format!("{}: not PEM", file.display()))
}
