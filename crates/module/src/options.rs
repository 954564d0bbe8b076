//! What is needed to open a token; travels to worker processes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hsmux_token::{Secret, Uri};
use minicbor::{Decode, Decoder, Encode, Encoder};

/// Which token of a module: label, serial number, slot id, manufacturer, model. An empty one means
/// the only initialised token that there is.
pub type SlotSelector = Uri;

/// One token of one module, and how to use it.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(array)]
pub struct Options {
    /// The module's file. It is never searched for: a bare name is a file of the working directory.
    #[cbor(n(0), with = "path")]
    pub module: PathBuf,
    /// Which of its tokens.
    #[n(1)]
    pub slot: SlotSelector,
    /// The user PIN. Without it there is a login only on a token with its own PIN pad
    /// (CKF_PROTECTED_AUTHENTICATION_PATH); elsewhere only public objects are seen.
    #[n(2)]
    pub pin: Option<Secret>,
    /// How many operations may run at once; fewer when the token has fewer sessions. At least 1.
    #[n(3)]
    pub sessions: u32,
    /// The folder of the PIN breaker, see [`crate::pin`]. Every process of a machine uses the same.
    #[cbor(n(4), with = "path")]
    pub state: PathBuf,
    /// What messages call it: the member's name, and which of its workers it is.
    #[n(6)]
    pub name: String,
    /// Whether keys in use are copied as session objects; `None`: where that is known to be faster (SoftHSM).
    #[n(7)]
    pub copies: Option<bool>,
    /// The member's name, where `name` is another.
    #[n(8)]
    pub member: Option<String>,
    /// How commands name a token that is not a member yet: its URI.
    #[n(9)]
    pub uri: Option<String>,
}

impl Options {
    /// The member's name, as commands know it.
    pub(crate) fn member(&self) -> &str {
        self.member.as_deref().unwrap_or(&self.name)
    }

    /// The name that `hsmux pin release` takes.
    pub(crate) fn command_name(&self) -> &str {
        self.uri.as_deref().unwrap_or_else(|| self.member())
    }
}

/// A path is bytes, whatever its encoding.
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
