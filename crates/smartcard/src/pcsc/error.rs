use ::pcsc::Error;

use crate::channel::ChannelError;

/// The meaning of a PC/SC error for the user of the card in `reader`.
pub fn channel_error(reader: &str, call: &'static str, error: Error) -> ChannelError {
    let reader = reader.to_owned();
    match error {
        Error::NoService | Error::ServiceStopped | Error::Shutdown => ChannelError::NoPcscd,
        Error::NoAccess | Error::SecurityViolation => ChannelError::NotPermitted,
        Error::NoSmartcard | Error::RemovedCard => ChannelError::Removed { reader },
        Error::UnresponsiveCard | Error::UnpoweredCard | Error::NotTransacted => {
            ChannelError::Mute { reader }
        }
        Error::ResetCard => ChannelError::Reset { reader },
        Error::SharingViolation => ChannelError::SharingViolation { reader },
        Error::UnknownReader | Error::ReaderUnavailable | Error::NoReadersAvailable => {
            ChannelError::NoReader { reader }
        }
        other => ChannelError::Other {
            reader,
            call,
            message: other.to_string(),
        },
    }
}

/// Has the connection to pcscd gone, and with it the context?
pub fn is_gone(error: Error) -> bool {
    matches!(
        error,
        Error::InvalidHandle
            | Error::NoService
            | Error::ServiceStopped
            | Error::Shutdown
            | Error::CommError
    )
}
