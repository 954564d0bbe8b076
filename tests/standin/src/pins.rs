//! PINs, and counters of wrong ones.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use hsmux_token::ck::*;
use parking_lot::Mutex;

use crate::control::{PinFlags, TokenControl};

/// The logs of tokens without a state folder.
static LOGS: Mutex<Option<HashMap<String, String>>> = Mutex::new(None);

impl TokenControl {
    /// Compares and logs a PIN; returns CKR_PIN_INCORRECT or CKR_PIN_LOCKED if it is wrong.
    pub fn show_pin(&self, call: &str, user: CK_USER_TYPE, pin: &[u8]) -> Result<(), CK_RV> {
        let right = match user {
            CKU_SO => pin == self.so_pin.as_bytes(),
            _ => pin == self.user_pin().as_bytes(),
        };
        let locked = self.wrong_in_a_row(user) >= self.tries;
        let (name, outcome) = (name(user), if right { "right" } else { "wrong" });
        self.log(&format!("{call} {name} {outcome} {}\n", std::process::id()));
        match (locked, right) {
            (true, _) => Err(CKR_PIN_LOCKED),
            (false, true) => Ok(()),
            (false, false) => Err(CKR_PIN_INCORRECT),
        }
    }

    /// Sets the user's PIN, and resets the counter.
    pub fn set_user_pin(&self, pin: &[u8]) -> Result<(), CK_RV> {
        let path = self.file("pin").ok_or(CKR_FUNCTION_NOT_SUPPORTED)?;
        std::fs::write(path, pin).map_err(|_| CKR_DEVICE_MEMORY)?;
        self.log(&format!("PIN user right {}\n", std::process::id()));
        Ok(())
    }

    /// The CKF_* flags of the counters.
    pub fn counter_flags(&self) -> CK_FLAGS {
        let forced = self.pin_flags.map(|flags| match flags {
            PinFlags::Low => CKF_USER_PIN_COUNT_LOW,
            PinFlags::Final => CKF_USER_PIN_FINAL_TRY,
            PinFlags::Locked => CKF_USER_PIN_LOCKED,
        });
        let flags = |user, low, last, locked| match self.wrong_in_a_row(user) {
            0 => 0,
            n if n >= self.tries => locked,
            n if n + 1 == self.tries => low | last,
            _ => low,
        };
        let user = forced.unwrap_or_else(|| {
            flags(
                CKU_USER,
                CKF_USER_PIN_COUNT_LOW,
                CKF_USER_PIN_FINAL_TRY,
                CKF_USER_PIN_LOCKED,
            )
        });
        user | flags(
            CKU_SO,
            CKF_SO_PIN_COUNT_LOW,
            CKF_SO_PIN_FINAL_TRY,
            CKF_SO_PIN_LOCKED,
        )
    }

    fn user_pin(&self) -> String {
        let changed = self.file("pin").map(std::fs::read_to_string);
        match changed {
            Some(Ok(pin)) => pin,
            _ => self.pin.clone(),
        }
    }

    fn wrong_in_a_row(&self, user: CK_USER_TYPE) -> usize {
        let log = if let Some(path) = self.file("log") {
            std::fs::read_to_string(path).unwrap_or_default()
        } else {
            let logs = LOGS.lock();
            let log = logs.as_ref().and_then(|logs| logs.get(&self.label));
            log.cloned().unwrap_or_default()
        };
        let outcomes = log.lines().rev().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            (words.next()? == name(user)).then(|| words.next())?
        });
        outcomes.take_while(|outcome| *outcome == "wrong").count()
    }

    fn log(&self, line: &str) {
        if self.state.is_none() {
            let mut logs = LOGS.lock();
            let log = logs.get_or_insert_default().entry(self.label.clone());
            log.or_default().push_str(line);
        }
        self.tell("log", line);
    }

    /// Appends to a file in the state folder, if there is one.
    pub fn tell(&self, kind: &str, line: &str) {
        let Some(path) = self.file(kind) else { return };
        let file = OpenOptions::new().create(true).append(true).open(&path);
        if let Err(e) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            eprintln!("hsmux-standin: {}: {e}", path.display());
        }
    }

    fn file(&self, kind: &str) -> Option<PathBuf> {
        let folder = self.state.as_ref()?;
        // The test may not have created it.
        let _ = std::fs::create_dir_all(folder);
        Some(folder.join(format!("{}.{kind}", self.label)))
    }
}

fn name(user: CK_USER_TYPE) -> &'static str {
    match user {
        CKU_SO => "so",
        _ => "user",
    }
}
