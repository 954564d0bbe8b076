//! PINs on the command line: always by their source, never by value.

use std::convert::Infallible;
use std::io::Read;
use std::str::FromStr;

use anyhow::Context as _;
use hsmux_config::PinSource;
use hsmux_token::Secret;

use crate::exit::Exit;

/// The maximum that is read from a descriptor, like that of a frame with a PIN.
const LONGEST: usize = 4 << 10;

/// The source of a PIN: `file:PATH`, `env:NAME`, `fd:NUMBER` or `prompt`.
#[derive(Clone, Debug)]
pub enum PinArg {
    /// As in the configuration.
    Source(PinSource),
    /// An open file descriptor, read to its end.
    Descriptor(u32),
    /// Asked for at the terminal.
    Prompt,
    /// Another text, probably the PIN itself: it is neither stored nor repeated in an error.
    Other,
}

impl FromStr for PinArg {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Self::Source(PinSource::File(path.into())),
            Some(("env", name)) if !name.is_empty() => Self::Source(PinSource::Env(name.into())),
            Some(("fd", number)) => number.parse().map_or(Self::Other, Self::Descriptor),
            None if text == "prompt" => Self::Prompt,
            _ => Self::Other,
        })
    }
}

impl PinArg {
    /// Reads the PIN; `whose` is for the prompt.
    pub fn read(&self, whose: &str) -> anyhow::Result<Secret> {
        match self {
            Self::Source(source) => Ok(source.read()?),
            Self::Other => Err(Exit::Usage.because(format!(
                "{whose}: a PIN is named by its place, for arguments are seen by every user: \
                 file:PATH, env:NAME, fd:NUMBER or prompt"
            ))),
            Self::Prompt => {
                let pin = rpassword::prompt_password(format!("{whose}: ")).context(
                    "no terminal to ask for the PIN; use file:PATH, env:NAME or fd:NUMBER",
                )?;
                Ok(Secret::new(pin.into_bytes()))
            }
            Self::Descriptor(number) => {
                // A growing buffer would leave copies of the PIN behind.
                let mut bytes = Vec::with_capacity(LONGEST);
                std::fs::File::open(format!("/proc/self/fd/{number}"))
                    .and_then(|file| file.take(LONGEST as u64).read_to_end(&mut bytes))
                    .with_context(|| format!("{whose}: file descriptor {number}"))?;
                if bytes.len() == LONGEST {
                    let message = format!("{whose}: file descriptor {number}: no PIN is as long");
                    return Err(Exit::Usage.because(message));
                }
                while bytes.last().is_some_and(|byte| b"\r\n".contains(byte)) {
                    bytes.pop();
                }
                Ok(Secret::new(bytes))
            }
        }
    }
}
