//! The library's one state: not initialised, or an [`App`].

use hsmux_token::ck::*;

use crate::app::App;
use crate::backend::Backend;
use crate::process_local::{ProcessLocal, PutOutcome};
use crate::rv::{Result, Rv};

static LIBRARY: ProcessLocal<App> = ProcessLocal::empty();

/// Runs a call on the library's state, or fails with CKR_CRYPTOKI_NOT_INITIALIZED.
pub fn with<T>(call: impl FnOnce(&App) -> Result<T>) -> Result<T> {
    match &*LIBRARY.get() {
        Some(app) => call(app),
        None => Err(Rv(CKR_CRYPTOKI_NOT_INITIALIZED)),
    }
}

/// The same for a call in a session, which is looked for before anything else (PKCS#11 3.0, section 5.1.7).
pub fn in_session<T>(session: u64, call: impl FnOnce(&App) -> Result<T>) -> Result<T> {
    with(|app| {
        app.sessions.get(session)?;
        call(app)
    })
}

/// C_Initialize, on the backend that `make` gives.
pub fn initialise(make: impl FnOnce() -> hsmux_token::Result<Box<dyn Backend>>) -> Result {
    let put = LIBRARY.put(|| make().map(App::new)).map_err(|error| {
        crate::debug::always(&error);
        Rv(error.code().unwrap_or(CKR_GENERAL_ERROR))
    })?;
    match put {
        PutOutcome::Done => Ok(()),
        PutOutcome::Already => Err(Rv(CKR_CRYPTOKI_ALREADY_INITIALIZED)),
    }
}

/// C_Finalize: sessions, their objects and the login end with the connections. Calls that are running
/// on other threads come to their own end.
pub fn finalise() -> Result {
    match LIBRARY.take() {
        Some(_) => Ok(()),
        None => Err(Rv(CKR_CRYPTOKI_NOT_INITIALIZED)),
    }
}
