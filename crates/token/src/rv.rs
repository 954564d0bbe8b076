//! CK_RV: what a vendor's code means for the pool, and which code an application gets for an error.

#[allow(
    clippy::wildcard_imports,
    reason = "a table of the standard's constants"
)]
use crate::ck::*;
use crate::{Error, Kind, Scope};

/// Codes that blame the token, and whether the connection to it is over.
const OF_TOKEN: &[(u64, bool)] = &[
    (CKR_HOST_MEMORY, true),
    (CKR_SLOT_ID_INVALID, true),
    (CKR_GENERAL_ERROR, false),
    (CKR_FUNCTION_FAILED, false),
    (CKR_CANT_LOCK, true),
    (CKR_DEVICE_ERROR, true),
    (CKR_DEVICE_MEMORY, false),
    (CKR_DEVICE_REMOVED, true),
    (CKR_FUNCTION_CANCELED, false),
    (CKR_KEY_HANDLE_INVALID, false),
    (CKR_OBJECT_HANDLE_INVALID, false),
    (CKR_OPERATION_ACTIVE, true),
    (CKR_OPERATION_NOT_INITIALIZED, false),
    (CKR_PIN_INCORRECT, false),
    (CKR_PIN_EXPIRED, false),
    (CKR_PIN_LOCKED, false),
    (CKR_SESSION_CLOSED, true),
    (CKR_SESSION_COUNT, true),
    (CKR_SESSION_HANDLE_INVALID, true),
    (CKR_TOKEN_NOT_PRESENT, true),
    (CKR_TOKEN_NOT_RECOGNIZED, true),
    (CKR_USER_NOT_LOGGED_IN, true),
    (CKR_CRYPTOKI_NOT_INITIALIZED, true),
    (CKR_MUTEX_BAD, true),
    (CKR_MUTEX_NOT_LOCKED, true),
];

fn of_token(code: u64) -> Option<bool> {
    if code >= CKR_VENDOR_DEFINED {
        return Some(false);
    }
    let found = OF_TOKEN.iter().find(|(listed, _)| *listed == code)?;
    Some(found.1)
}

/// Whose fault a vendor's code is. What is not listed is an answer to the request.
pub fn scope(code: u64) -> Scope {
    match of_token(code) {
        Some(_) => Scope::Token,
        None => Scope::Request,
    }
}

/// Whether the token must be connected anew.
pub fn ends_connection(code: u64) -> bool {
    of_token(code) == Some(true)
}

/// The one map from errors to CK_RV (PKCS#11 3.0, section 5.1).
pub fn of_error(error: &Error) -> u64 {
    match error.kind() {
        // Handles, sessions and PINs towards the vendor are ours, never the application's.
        Kind::Vendor(
            CKR_SESSION_HANDLE_INVALID
            | CKR_SESSION_CLOSED
            | CKR_CRYPTOKI_NOT_INITIALIZED
            | CKR_SLOT_ID_INVALID
            | CKR_USER_NOT_LOGGED_IN
            | CKR_OPERATION_ACTIVE
            | CKR_PIN_INCORRECT
            | CKR_PIN_EXPIRED
            | CKR_PIN_LOCKED,
        ) => CKR_DEVICE_ERROR,
        Kind::Vendor(code) => code,
        Kind::Busy | Kind::Deadline | Kind::PinThrottled => CKR_FUNCTION_FAILED,
        Kind::NoReplica | Kind::Lost | Kind::Protocol | Kind::AccessDenied => CKR_DEVICE_REMOVED,
        Kind::UnknownObject => CKR_OBJECT_HANDLE_INVALID,
        Kind::ReadOnly => CKR_TOKEN_WRITE_PROTECTED,
        Kind::NotLoggedIn => CKR_USER_NOT_LOGGED_IN,
        Kind::PinIncorrect => CKR_PIN_INCORRECT,
        Kind::Forbidden => CKR_KEY_FUNCTION_NOT_PERMITTED,
        Kind::Unsupported => CKR_FUNCTION_NOT_SUPPORTED,
        Kind::Invalid => CKR_ARGUMENTS_BAD,
        Kind::NoMechanism => CKR_MECHANISM_INVALID,
        Kind::PinHeld | Kind::Unproved | Kind::Environment | Kind::TooFewMembers => {
            CKR_DEVICE_ERROR
        }
    }
}

macro_rules! names {
    ($($name:ident)*) => {
        /// `CKR_DEVICE_ERROR`, or `vendor code`.
        pub fn name(code: u64) -> &'static str {
            match code {
                $($name => stringify!($name),)*
                _ => "vendor code",
            }
        }
    };
}

names! {
    CKR_OK CKR_CANCEL CKR_HOST_MEMORY CKR_SLOT_ID_INVALID CKR_GENERAL_ERROR CKR_FUNCTION_FAILED
    CKR_ARGUMENTS_BAD CKR_NO_EVENT CKR_NEED_TO_CREATE_THREADS CKR_CANT_LOCK CKR_ATTRIBUTE_READ_ONLY
    CKR_ATTRIBUTE_SENSITIVE CKR_ATTRIBUTE_TYPE_INVALID CKR_ATTRIBUTE_VALUE_INVALID
    CKR_ACTION_PROHIBITED CKR_DATA_INVALID CKR_DATA_LEN_RANGE CKR_DEVICE_ERROR CKR_DEVICE_MEMORY
    CKR_DEVICE_REMOVED CKR_ENCRYPTED_DATA_INVALID CKR_ENCRYPTED_DATA_LEN_RANGE
    CKR_FUNCTION_CANCELED CKR_FUNCTION_NOT_PARALLEL CKR_FUNCTION_NOT_SUPPORTED
    CKR_KEY_HANDLE_INVALID CKR_KEY_SIZE_RANGE CKR_KEY_TYPE_INCONSISTENT CKR_KEY_NOT_NEEDED
    CKR_KEY_CHANGED CKR_KEY_NEEDED CKR_KEY_INDIGESTIBLE CKR_KEY_FUNCTION_NOT_PERMITTED
    CKR_KEY_NOT_WRAPPABLE CKR_KEY_UNEXTRACTABLE CKR_MECHANISM_INVALID CKR_MECHANISM_PARAM_INVALID
    CKR_OBJECT_HANDLE_INVALID CKR_OPERATION_ACTIVE CKR_OPERATION_NOT_INITIALIZED CKR_PIN_INCORRECT
    CKR_PIN_INVALID CKR_PIN_LEN_RANGE CKR_PIN_EXPIRED CKR_PIN_LOCKED CKR_SESSION_CLOSED
    CKR_SESSION_COUNT CKR_SESSION_HANDLE_INVALID CKR_SESSION_PARALLEL_NOT_SUPPORTED
    CKR_SESSION_READ_ONLY CKR_SESSION_EXISTS CKR_SESSION_READ_ONLY_EXISTS
    CKR_SESSION_READ_WRITE_SO_EXISTS CKR_SIGNATURE_INVALID CKR_SIGNATURE_LEN_RANGE
    CKR_TEMPLATE_INCOMPLETE CKR_TEMPLATE_INCONSISTENT CKR_TOKEN_NOT_PRESENT
    CKR_TOKEN_NOT_RECOGNIZED CKR_TOKEN_WRITE_PROTECTED CKR_UNWRAPPING_KEY_HANDLE_INVALID
    CKR_UNWRAPPING_KEY_SIZE_RANGE CKR_UNWRAPPING_KEY_TYPE_INCONSISTENT CKR_USER_ALREADY_LOGGED_IN
    CKR_USER_NOT_LOGGED_IN CKR_USER_PIN_NOT_INITIALIZED CKR_USER_TYPE_INVALID
    CKR_USER_ANOTHER_ALREADY_LOGGED_IN CKR_USER_TOO_MANY_TYPES CKR_WRAPPED_KEY_INVALID
    CKR_WRAPPED_KEY_LEN_RANGE CKR_WRAPPING_KEY_HANDLE_INVALID CKR_WRAPPING_KEY_SIZE_RANGE
    CKR_WRAPPING_KEY_TYPE_INCONSISTENT CKR_RANDOM_SEED_NOT_SUPPORTED CKR_RANDOM_NO_RNG
    CKR_DOMAIN_PARAMS_INVALID CKR_CURVE_NOT_SUPPORTED CKR_BUFFER_TOO_SMALL CKR_SAVED_STATE_INVALID
    CKR_INFORMATION_SENSITIVE CKR_STATE_UNSAVEABLE CKR_CRYPTOKI_NOT_INITIALIZED
    CKR_CRYPTOKI_ALREADY_INITIALIZED CKR_MUTEX_BAD CKR_MUTEX_NOT_LOCKED CKR_FUNCTION_REJECTED
}
