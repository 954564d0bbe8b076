//! PINs on the command line: by their place, never by themselves.

use std::io::Read;
use std::str::FromStr;

use anyhow::Context as _;
use hsmux_pool::config::PinSource;
use hsmux_token::Secret;

/// Where a PIN comes from: `file:PATH`, `env:NAME`, `fd:NUMBER` or `prompt`.
#[derive(Clone, Debug)]
pub enum PinArg {
    /// As in the configuration.
    Source(PinSource),
    /// An open file descriptor, read to its end.
    Descriptor(u32),
    /// Asked for at the terminal.
    Prompt,
}

impl FromStr for PinArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => {
                Ok(Self::Source(PinSource::File(path.into())))
            }
            Some(("env", name)) if !name.is_empty() => {
                Ok(Self::Source(PinSource::Env(name.into())))
            }
            Some(("fd", number)) => number
                .parse()
                .map(Self::Descriptor)
                .map_err(|_| format!("{number:?} is not the number of a file descriptor")),
            None if text == "prompt" => Ok(Self::Prompt),
            _ => Err(
                "a PIN is named by its place, for arguments are seen by every user: \
                      file:PATH, env:NAME, fd:NUMBER or prompt"
                    .into(),
            ),
        }
    }
}

impl PinArg {
    /// Reads the PIN; `whose` is for the prompt.
    pub fn read(&self, whose: &str) -> anyhow::Result<Secret> {
        match self {
            Self::Source(source) => Ok(source.read()?),
            Self::Prompt => {
                let pin = rpassword::prompt_password(format!("{whose}: ")).context(
                    "no terminal to ask for the PIN; use file:PATH, env:NAME or fd:NUMBER",
                )?;
                Ok(Secret::new(pin.into_bytes()))
            }
            Self::Descriptor(number) => {
                let mut bytes = Vec::new();
                std::fs::File::open(format!("/proc/self/fd/{number}"))
                    .and_then(|mut file| file.read_to_end(&mut bytes))
                    .with_context(|| format!("{whose}: file descriptor {number}"))?;
                while bytes.last().is_some_and(|byte| b"\r\n".contains(byte)) {
                    bytes.pop();
                }
                Ok(Secret::new(bytes))
            }
        }
    }
}
