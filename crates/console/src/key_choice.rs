//! The keys of a command: a PKCS#11 URI, or its parts as options.

use clap::Args;
use hsmux_token::{Class, Uri, UriError};

use crate::exit::Exit;

/// A PKCS#11 URI, or its parts, which need no quotes in a shell.
#[derive(Args, Clone, Debug, Default)]
pub struct KeyChoice {
    /// PKCS#11 URI (RFC 7512), in quotes: the shell ends a command at `;`
    #[arg(value_name = "URI", value_parser = key_uri)]
    uri: Option<Uri>,
    #[command(flatten)]
    parts: KeyParts,
}

/// The parts of a URI, for commands that have the URI itself as an option.
#[derive(Args, Clone, Debug, Default)]
pub struct KeyParts {
    /// CKA_LABEL, in place of a URI
    #[arg(long)]
    label: Option<String>,
    /// CKA_ID in hexadecimal, in place of a URI
    #[arg(long, value_name = "HEX")]
    id: Option<Id>,
    /// Class: private, public, secret-key, cert or data
    #[arg(long = "type", value_name = "TYPE", value_parser = class)]
    class: Option<Class>,
}

/// The wrapping key of copies.
#[derive(Args, Clone, Debug)]
pub struct WrappingKey {
    /// The AES key that wraps copied keys; both members hold it [default: a key of the target's own]
    #[arg(id = "wrapping_key", long = "wrapping-key", value_name = "URI")]
    uri: Option<Uri>,
    /// CKA_LABEL of that key, in place of a URI
    #[arg(id = "wrapping_label", long = "wrapping-label", value_name = "LABEL")]
    label: Option<String>,
    /// CKA_ID of that key in hexadecimal, in place of a URI
    #[arg(id = "wrapping_id", long = "wrapping-id", value_name = "HEX")]
    id: Option<Id>,
}

/// A CKA_ID, written in hexadecimal.
#[derive(Clone, Debug)]
struct Id(Vec<u8>);

impl std::str::FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        hexadecimal(text)?;
        let id = hex::decode(text);
        id.map(Self).map_err(|why| why.to_string())
    }
}

/// Checks a CKA_ID of the command line.
pub fn hexadecimal(text: &str) -> Result<String, String> {
    let wrong = |why| format!("not hexadecimal: {why}; give pairs of digits, such as 0a1b");
    hex::decode(text).map_err(wrong)?;
    Ok(text.to_owned())
}

/// A URI of the command line. People write a label in its place.
fn key_uri(text: &str) -> Result<Uri, String> {
    let uri: Result<Uri, UriError> = text.parse();
    uri.map_err(|why| {
        if text.contains([':', ';']) {
            return why.to_string();
        }
        format!("{why}; a key is also named by --label {text}")
    })
}

impl KeyChoice {
    /// The URI; `None` if the user gave neither.
    pub fn uri(&self) -> anyhow::Result<Option<Uri>> {
        self.parts.with(self.uri.as_ref())
    }

    /// The URI, for commands that require one.
    pub fn required(&self) -> anyhow::Result<Uri> {
        self.uri()?
            .ok_or_else(|| usage("no key is named: give a PKCS#11 URI, or --label, --id or --type"))
    }
}

impl KeyParts {
    /// The URI with these parts; `None` if the user gave neither.
    pub fn with(&self, uri: Option<&Uri>) -> anyhow::Result<Option<Uri>> {
        let Self { label, id, class } = self;
        if uri.is_none() && label.is_none() && id.is_none() && class.is_none() {
            return Ok(None);
        }
        let mut uri = uri.cloned().unwrap_or_default();
        once(&mut uri.object, label.clone(), "--label", "object=")?;
        let id = id.clone().map(|Id(id)| id);
        once(&mut uri.id, id, "--id", "id=")?;
        once(&mut uri.class, *class, "--type", "type=")?;
        Ok(Some(uri))
    }
}

impl WrappingKey {
    /// Its URI; `None` if the user gave none.
    pub fn uri(&self) -> anyhow::Result<Option<Uri>> {
        let Self { uri, label, id } = self;
        if uri.is_none() && label.is_none() && id.is_none() {
            return Ok(None);
        }
        let mut uri = uri.clone().unwrap_or_default();
        once(
            &mut uri.object,
            label.clone(),
            "--wrapping-label",
            "object=",
        )?;
        let id = id.clone().map(|Id(id)| id);
        once(&mut uri.id, id, "--wrapping-id", "id=")?;
        Ok(Some(uri))
    }
}

/// A value of `type=` (RFC 7512, section 2.3).
fn class(text: &str) -> Result<Class, String> {
    let known: Result<Uri, UriError> = format!("pkcs11:type={text}").parse();
    let alone = known.ok().filter(|_| !text.contains([';', '?']));
    let class = alone.and_then(|uri| uri.class);
    class.ok_or_else(|| "one of private, public, secret-key, cert or data".into())
}

fn once<T>(
    part: &mut Option<T>,
    value: Option<T>,
    option: &str,
    attribute: &str,
) -> anyhow::Result<()> {
    if value.is_none() {
        return Ok(());
    }
    if part.is_some() {
        let why = format!("{option} and {attribute} in the URI name the same: leave one out");
        return Err(usage(why));
    }
    *part = value;
    Ok(())
}

fn usage(why: impl Into<String>) -> anyhow::Error {
    Exit::Usage.because(why)
}
