//! Options to open a token; also sent to worker processes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hsmux_token::{Secret, Uri};
use minicbor::{Decode, Decoder, Encode, Encoder};

/// Selects a token of a module by label, serial number, slot id, manufacturer or model.
/// An empty selector means the only initialised token.
pub type SlotSelector = Uri;

/// One token of one module, and how to use it.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(array)]
pub struct Options {
    /// The module's file, without a search: a bare name is a file of the working directory.
    #[cbor(n(0), with = "path")]
    pub module: PathBuf,
    /// The token of the module.
    #[n(1)]
    pub slot: SlotSelector,
    /// The user PIN. Without it only tokens with a PIN pad (CKF_PROTECTED_AUTHENTICATION_PATH) get a login;
    /// others show public objects only.
    #[n(2)]
    pub pin: Option<Secret>,
    /// How many operations may run at once, at least 1; fewer if the token has fewer sessions.
    #[n(3)]
    pub sessions: u32,
    /// The folder of the PIN breaker, see [`crate::pin`]; the same for all processes of a host.
    #[cbor(n(4), with = "path")]
    pub state: PathBuf,
    /// The name in messages: the member's name and the worker's number.
    #[n(6)]
    pub name: String,
    /// Whether keys in use are copied as session objects; `None`: only for tokens known to be faster with it (SoftHSM).
    #[n(7)]
    pub copies: Option<bool>,
    /// The member's name, if it differs from `name`.
    #[n(8)]
    pub member: Option<String>,
    /// The URI, which names a token that is not a member yet in commands.
    #[n(9)]
    pub uri: Option<String>,
}

impl Options {
    /// The member's name in commands.
    pub(crate) fn member(&self) -> &str {
        self.member.as_deref().unwrap_or(&self.name)
    }

    /// The name that `hsmux pin release` takes.
    pub(crate) fn command_name(&self) -> &str {
        self.uri.as_deref().unwrap_or_else(|| self.member())
    }
}

/// Serialises a path as bytes, whatever its encoding.
mod path {
    use super::{Decoder, Encoder, OsStr, OsStrExt, Path, PathBuf};
    use minicbor::{decode::Error as Malformed, encode as to};

    pub fn encode<C, W: to::Write>(
        path: &Path,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), to::Error<W::Error>> {
        e.bytes(path.as_os_str().as_bytes())?.ok()
    }

    pub fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<PathBuf, Malformed> {
        Ok(PathBuf::from(OsStr::from_bytes(d.bytes()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_arrive_at_a_worker_as_they_were() {
        let sent = Options {
            module: OsStr::from_bytes(b"/not/utf-8/\xff.so").into(),
            slot: "pkcs11:token=hsm1;slot-id=3".parse().unwrap(),
            pin: Some(Secret::new(b"1234".to_vec())),
            sessions: 4,
            state: "/var/lib/hsmux".into(),
            name: "hsm1#2".into(),
            copies: Some(true),
            member: Some("hsm1".into()),
            uri: Some("pkcs11:token=hsm1".into()),
        };
        let frame = minicbor::to_vec(&sent).unwrap();
        let got: Options = minicbor::decode(&frame).unwrap();
        assert_eq!(got.pin.as_ref().unwrap().expose(), b"1234");
        assert_eq!(format!("{got:?}"), format!("{sent:?}"));
        assert!(!format!("{got:?}").contains("1234"));
    }
}
