//! The control file, read again whenever it has changed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use hsmux_token::ck::*;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::churn::Cost;

/// The whole file.
#[allow(clippy::struct_excessive_bools)] // Each is a line of the file.
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct ControlFile {
    /// Another module that provides tokens and keys. All its tokens have the settings of the first `[[token]]`,
    /// as far as they concern uses of keys (`C_Sign`, `C_Encrypt`, `C_Decrypt`).
    pub forward: Option<PathBuf>,
    /// The file does not change any more: the check at each call, as long as a fast signature, is omitted.
    pub settled: bool,
    /// C_Initialize ends the process with SIGABRT.
    pub crash_in_initialize: bool,
    /// C_Initialize does not return while this is set.
    pub hang_in_initialize: bool,
    /// Attempts of C_Initialize: `read:FILE`, `write:FILE`, `device:FILE`, `socket:FILE`, `connect:HOST:PORT` or
    /// `run:PROGRAM`. The file `reached` in the first token's state folder records which succeeded.
    pub reach: Vec<String>,
    /// C_Initialize returns this code.
    pub initialize_error: u64,
    /// C_GetSlotList takes a millisecond, and returns CKR_GENERAL_ERROR to a thread that calls it meanwhile.
    pub slots_alone: bool,
    /// Default settings of tokens.
    defaults: toml::Table,
    token: Vec<toml::Table>,
    /// The tokens; the slot's number is the index, from 0.
    #[serde(skip)]
    pub tokens: Vec<TokenControl>,
}

/// One token.
#[allow(clippy::struct_excessive_bools)] // Each is a line of the file.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct TokenControl {
    /// label; by default `standin`.
    pub label: String,
    /// serialNumber; by default the label.
    pub serial: String,
    /// manufacturerID; by default `hsmux`, with `forward` that of the other module.
    pub manufacturer: String,
    /// The user's PIN; by default `1234`. C_SetPIN writes a new one to `STATE/LABEL.pin`, which has priority.
    pub pin: String,
    /// The security officer's PIN; by default `12345678`.
    pub so_pin: String,
    /// A folder for persistent state. `LABEL.log` has a line `CALL USER right|wrong PROCESS` for each shown PIN,
    /// written first; `LABEL.hang` a line `PROCESS THREAD` (the thread's name) for each hanging call; `LABEL.pin` is as
    /// above. Without it the PIN counter is in the process.
    pub state: Option<PathBuf>,
    /// Consecutive wrong PINs that lock it; by default 3. The CKF_*_PIN_* flags follow.
    pub tries: usize,
    /// `low`, `final` or `locked`: fixed flags of the user's counter.
    pub pin_flags: Option<PinFlags>,
    /// The seed of its keys: tokens with the same seed hold the same keys.
    pub key_seed: u64,
    /// Its keys: of `rsa`, `ec`, `aes` and `ml-dsa`; by default the first three. A removed one disappears at once.
    pub keys: Vec<String>,
    /// Whether the token is in its slot.
    pub present: bool,
    /// The duration of each private or secret key operation, in microseconds, on the monotonic clock.
    pub service_time_us: u64,
    /// Whether several operations run at once; by default one after the other, as in a card.
    pub parallel: bool,
    /// The maximum number of sessions; 0: any number.
    pub sessions: usize,
    /// ECDSA with one nonce for all signatures: a microsecond each. They verify, but two of them reveal the key.
    /// For measurements of other durations than `service_time_us`.
    pub fast_sign: bool,
    /// The process ends with SIGABRT in the operation after this number; each process counts from 0.
    pub crash_after: Option<u64>,
    /// Operations do not return while this is set.
    pub hang_in_sign: bool,
    /// The same from the operation after this number.
    pub hang_after: Option<u64>,
    /// C_Login does not return while this is set; the attempt is logged without an outcome.
    pub hang_in_login: bool,
    /// C_Login ends the process with SIGABRT, after it was logged.
    pub crash_in_login: bool,
    /// C_Login returns this code after the attempt was counted.
    pub login_error: u64,
    /// C_SetPIN ends the process `before` or `after` the change of the PIN.
    pub crash_in_set_pin: Option<When>,
    /// The same, but it does not return while this is set.
    pub hang_in_set_pin: Option<When>,
    /// Private and secret keys do not match their public attributes and check values.
    pub wrong_key: bool,
    /// Each operation leaks this number of bytes.
    pub leak: usize,
    /// With `forward` to SoftHSM: the additional time of each operation after another process has changed keys, until
    /// C_Initialize. Operations then run in sequence. `{}` is the published cost: 29 us, and 4.9 us per object.
    pub churn: Option<Cost>,
    /// The period of wrong signatures; 0: none.
    pub wrong_signature_every: u64,
    /// C_SetPIN returns this code, and changes nothing.
    pub set_pin_error: u64,
    /// The second call of every operation returns this code.
    pub sign_error: u64,
    /// The same for decryptions only; with `forward` only.
    pub decrypt_error: u64,
    /// Calls that create objects return this code and create none; with `forward` only.
    pub make_error: u64,
    /// Attributes (`CKA_*`, as numbers) that templates of new objects must not set to `CK_FALSE`; with `forward` only.
    pub refuses_false: Vec<u64>,
    /// Calls that create or delete objects do not return while this is set; with `forward` only.
    pub hang_in_change: bool,
    /// Objects with this CKA_LABEL cannot be destroyed; with `forward` only.
    pub lasting: String,
    /// Mechanisms (`CKM_*`, as numbers) that it does not list; with `forward` it also creates no keys by them.
    pub lacks: Vec<u64>,
    /// The first call of every operation returns this code, as for an operation left active.
    pub init_error: u64,
    /// The code for a stale key handle; by default CKR_KEY_HANDLE_INVALID (Kryoptic: 5).
    pub dead_handle_error: u64,
    /// The private EC key has CKA_ALWAYS_AUTHENTICATE, and requires a login for each use.
    pub always_authenticate: bool,
    /// The AES key has no CKA_CHECK_VALUE: only its token can name it.
    pub no_check_value: bool,
    /// C_GetAttributeValue stops at the first attribute that an object lacks.
    pub stops_at_first_attribute: bool,
    /// C_FindObjects returns objects without end.
    pub endless_search: bool,
    /// Every operation requires a buffer of at least this length.
    pub least_buffer: usize,
    /// The answer of every operation is longer by this number of bytes.
    pub longer_by: usize,
    /// A short buffer ends the operation, against the standard.
    pub small_buffer_ends_operation: bool,
}

/// Fixed flags.
#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(rename_all = "lowercase")]
pub enum PinFlags {
    /// CKF_USER_PIN_COUNT_LOW.
    Low,
    /// CKF_USER_PIN_FINAL_TRY.
    Final,
    /// CKF_USER_PIN_LOCKED.
    Locked,
}

/// The side of a change.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Before it.
    Before,
    /// After it.
    After,
}

impl Default for TokenControl {
    fn default() -> Self {
        Self {
            label: "standin".into(),
            serial: String::new(),
            manufacturer: String::new(),
            pin: "1234".into(),
            so_pin: "12345678".into(),
            state: None,
            tries: 3,
            pin_flags: None,
            key_seed: 0,
            keys: ["rsa", "ec", "aes"].map(String::from).to_vec(),
            present: true,
            service_time_us: 0,
            parallel: false,
            sessions: 0,
            fast_sign: false,
            crash_after: None,
            hang_in_sign: false,
            hang_after: None,
            hang_in_login: false,
            crash_in_login: false,
            login_error: CKR_OK,
            crash_in_set_pin: None,
            hang_in_set_pin: None,
            wrong_key: false,
            leak: 0,
            churn: None,
            wrong_signature_every: 0,
            set_pin_error: CKR_OK,
            sign_error: CKR_OK,
            decrypt_error: CKR_OK,
            make_error: CKR_OK,
            refuses_false: Vec::new(),
            hang_in_change: false,
            lasting: String::new(),
            lacks: Vec::new(),
            init_error: CKR_OK,
            dead_handle_error: CKR_KEY_HANDLE_INVALID,
            always_authenticate: false,
            no_check_value: false,
            stops_at_first_attribute: false,
            endless_search: false,
            least_buffer: 0,
            longer_by: 0,
            small_buffer_ends_operation: false,
        }
    }
}

impl ControlFile {
    /// The current file.
    pub fn now() -> Result<Arc<Self>, CK_RV> {
        static LAST: Mutex<Option<(Stamp, Arc<ControlFile>)>> = Mutex::new(None);
        let mut last = LAST.lock();
        let settled = last.as_ref().filter(|(_, control)| control.settled);
        if let Some((_, control)) = settled {
            return Ok(Arc::clone(control));
        }
        let stamp = PATH.as_deref().map(Stamp::of).unwrap_or_default();
        match &*last {
            Some((read, control)) if *read == stamp => Ok(Arc::clone(control)),
            _ => {
                let control = Arc::new(Self::read(PATH.as_deref())?);
                *last = Some((stamp, Arc::clone(&control)));
                Ok(control)
            }
        }
    }

    fn read(path: Option<&Path>) -> Result<Self, CK_RV> {
        let Some(path) = path else {
            return Self::parse("[[token]]").map_err(|_| CKR_GENERAL_ERROR);
        };
        let text = std::fs::read_to_string(path).map_err(|e| e.to_string());
        text.and_then(|text| Self::parse(&text)).map_err(|e| {
            eprintln!("hsmux-standin: {}: {e}", path.display());
            CKR_ARGUMENTS_BAD
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut control: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        let mut own = std::mem::take(&mut control.token);
        if control.forward.is_some() {
            own.truncate(1);
            own.resize_with(1, toml::Table::new);
        }
        for own in own {
            let mut table = control.defaults.clone();
            table.extend(own);
            let mut token: TokenControl = table.try_into().map_err(|e| e.to_string())?;
            if token.serial.is_empty() {
                token.serial.clone_from(&token.label);
            }
            control.tokens.push(token);
        }
        Ok(control)
    }

    /// The token in a slot.
    pub fn token(&self, slot: CK_SLOT_ID) -> Result<&TokenControl, CK_RV> {
        let index = match &self.forward {
            // The other module has its own slot numbers.
            Some(_) => 0,
            None => usize::try_from(slot).map_err(|_| CKR_SLOT_ID_INVALID)?,
        };
        match self.tokens.get(index) {
            Some(token) if token.present => Ok(token),
            Some(_) => Err(CKR_TOKEN_NOT_PRESENT),
            None => Err(CKR_SLOT_ID_INVALID),
        }
    }
}

/// Identifies a state of the file without reading it.
#[derive(PartialEq, Eq, Default)]
struct Stamp(Option<(SystemTime, u64, u64)>);

impl Stamp {
    fn of(path: &Path) -> Self {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path).ok();
        Self(metadata.and_then(|m| Some((m.modified().ok()?, m.len(), m.ino()))))
    }
}

static PATH: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let beside = own_file().map(|mut file| {
        file.push(".toml");
        PathBuf::from(file)
    });
    beside
        .filter(|path| path.exists())
        .or_else(|| std::env::var_os("HSMUX_STANDIN").map(PathBuf::from))
});

/// The file that this code was loaded from, by the mapping of one of its functions.
fn own_file() -> Option<std::ffi::OsString> {
    let here = ControlFile::now as *const () as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| {
        let range = line.split(' ').next().and_then(|r| r.split_once('-'));
        range.is_some_and(|(start, end)| {
            let parse = |hex| usize::from_str_radix(hex, 16).unwrap_or_default();
            (parse(start)..parse(end)).contains(&here)
        })
    })?;
    let path = line.splitn(6, ' ').nth(5)?.trim_start();
    // A copy in memory has the name of its file.
    let copied = path.strip_prefix("/memfd:");
    let file = copied.and_then(|name| name.strip_suffix(" (deleted)"));
    Some(file.unwrap_or(path).into())
}
