//! Which keys a command is about: a PKCS#11 URI, or its parts as options.

use clap::Args;
use hsmux_token::{Uri, UriError};

use crate::exit::Exit;

/// A PKCS#11 URI, or its parts, which need no quotes in a shell.
#[derive(Args, Clone, Debug, Default)]
pub struct KeyChoice {
    /// PKCS#11 URI (RFC 7512), in quotes: the shell ends a command at `;`
    #[arg(value_name = "URI")]
    uri: Option<String>,
    /// CKA_LABEL, in place of a URI
    #[arg(long)]
    label: Option<String>,
    /// CKA_ID in hexadecimal, in place of a URI
    #[arg(long, value_name = "HEX")]
    id: Option<String>,
    /// Class: private, public, secret-key, cert or data
    #[arg(long = "type", value_name = "TYPE")]
    class: Option<String>,
}

impl KeyChoice {
    /// The URI, or nothing if the user named nothing.
    pub fn uri(&self) -> anyhow::Result<Option<Uri>> {
        let mut uri = match &self.uri {
            Some(text) => parsed(text)?,
            None if self.label.is_none() && self.id.is_none() && self.class.is_none() => {
                return Ok(None);
            }
            None => Uri::default(),
        };
        if let Some(label) = &self.label {
            once(&mut uri.object, label.clone(), "--label", "object=")?;
        }
        if let Some(id) = &self.id {
            let id = hex::decode(id)
                .map_err(|why| usage(format!("--id {id}: not hexadecimal: {why}")))?;
            once(&mut uri.id, id, "--id", "id=")?;
        }
        if let Some(class) = &self.class {
            let known = parsed(&format!("pkcs11:type={class}"))
                .map_err(|_| usage(format!("--type {class}: one of {TYPES}")))?;
            let class = known.class.ok_or_else(|| usage("--type is empty"))?;
            once(&mut uri.class, class, "--type", "type=")?;
        }
        Ok(Some(uri))
    }

    /// The URI of a command that needs one.
    pub fn required(&self) -> anyhow::Result<Uri> {
        self.uri()?
            .ok_or_else(|| usage("no key is named: give a PKCS#11 URI, or --label, --id or --type"))
    }
}

/// Values of `type=` (RFC 7512, section 2.3).
const TYPES: &str = "private, public, secret-key, cert or data";

fn once<T>(part: &mut Option<T>, value: T, option: &str, attribute: &str) -> anyhow::Result<()> {
    if part.is_some() {
        let why = format!("{option} and {attribute} in the URI name the same: leave one out");
        return Err(usage(why));
    }
    *part = Some(value);
    Ok(())
}

fn parsed(text: &str) -> anyhow::Result<Uri> {
    text.parse().map_err(|why: UriError| usage(why.to_string()))
}

fn usage(why: impl Into<String>) -> anyhow::Error {
    Exit::Usage.because(why)
}
