//! The one slot, with the pool as its token.

use hsmux_token::TokenFlags;
use hsmux_token::ck::*;
use hsmux_token::sync::atomic::Ordering;

use crate::app::App;
use crate::entry::padded;
use crate::rv::{Result, Rv};

/// The slot's number: always the same.
pub const SLOT: CK_SLOT_ID = 1;

const MANUFACTURER: &str = "hsmux";

/// Refuses other slots.
pub fn check(slot: CK_SLOT_ID) -> Result {
    match slot {
        SLOT => Ok(()),
        _ => Err(Rv(CKR_SLOT_ID_INVALID)),
    }
}

/// C_GetInfo, as of an interface of this version.
pub fn library_info(version: CK_VERSION) -> CK_INFO {
    CK_INFO {
        cryptokiVersion: version,
        manufacturerID: padded(MANUFACTURER),
        flags: 0,
        libraryDescription: padded("A pool of tokens as one"),
        libraryVersion: own_version(),
    }
}

fn own_version() -> CK_VERSION {
    let part = |text: &str| text.parse().unwrap_or(0);
    CK_VERSION {
        major: part(env!("CARGO_PKG_VERSION_MAJOR")),
        minor: part(env!("CARGO_PKG_VERSION_MINOR")),
    }
}

impl App {
    /// True if the token is in the slot: the daemon answers, or sessions are open. Sessions outlive a short absence
    /// of the daemon; a program that heard of a removed token (NSS asks once a second) would close them and lose its
    /// keys.
    pub fn is_present(&self) -> bool {
        self.refresh().is_ok() || self.sessions.count().0 > 0
    }

    /// Fails with CKR_TOKEN_NOT_PRESENT if it is not.
    pub fn check_present(&self) -> Result {
        match self.refresh() {
            Err(Rv(CKR_DEVICE_REMOVED)) => Err(Rv(CKR_TOKEN_NOT_PRESENT)),
            other => other,
        }
    }

    /// C_GetSlotInfo. The token can be taken out: the daemon can be stopped.
    pub fn slot_info(&self) -> CK_SLOT_INFO {
        let present = if self.is_present() {
            CKF_TOKEN_PRESENT
        } else {
            0
        };
        CK_SLOT_INFO {
            slotDescription: padded("hsmux pool"),
            manufacturerID: padded(MANUFACTURER),
            flags: CKF_REMOVABLE_DEVICE | present,
            hardwareVersion: own_version(),
            firmwareVersion: own_version(),
        }
    }

    /// C_GetTokenInfo.
    pub fn token_info(&self) -> Result<CK_TOKEN_INFO> {
        self.check_present()?;
        let catalogue = self.objects.catalogue();
        let info = &catalogue.info;
        let (sessions, writing) = self.sessions.count();
        let version = |(major, minor)| CK_VERSION { major, minor };
        Ok(CK_TOKEN_INFO {
            label: padded(&info.label),
            manufacturerID: padded(&info.manufacturer),
            model: padded(&info.model),
            serialNumber: padded(&info.serial),
            flags: (info.flags & APPLICATIONS).bits()
                | CKF_DUAL_CRYPTO_OPERATIONS
                | self.refusals(),
            ulMaxSessionCount: CK_EFFECTIVELY_INFINITE,
            ulSessionCount: sessions,
            ulMaxRwSessionCount: CK_EFFECTIVELY_INFINITE,
            ulRwSessionCount: writing,
            ulMaxPinLen: info.pin_length.1,
            ulMinPinLen: info.pin_length.0,
            ulTotalPublicMemory: CK_UNAVAILABLE_INFORMATION,
            ulFreePublicMemory: CK_UNAVAILABLE_INFORMATION,
            ulTotalPrivateMemory: CK_UNAVAILABLE_INFORMATION,
            ulFreePrivateMemory: CK_UNAVAILABLE_INFORMATION,
            hardwareVersion: version(info.hardware),
            firmwareVersion: version(info.firmware),
            utcTime: [b' '; 16],
        })
    }

    /// The flag of a wrong PIN: one that this program has tried, since its last good one.
    fn refusals(&self) -> CK_FLAGS {
        if self.pin_refused.load(Ordering::Relaxed) {
            CKF_USER_PIN_COUNT_LOW
        } else {
            0
        }
    }

    /// C_GetMechanismInfo.
    pub fn mechanism_info(&self, kind: CK_MECHANISM_TYPE) -> Result<CK_MECHANISM_INFO> {
        self.check_present()?;
        let catalogue = self.objects.catalogue();
        let info = catalogue.mechanisms.get(kind);
        let info = info.ok_or(Rv(CKR_MECHANISM_INVALID))?;
        Ok(CK_MECHANISM_INFO {
            ulMinKeySize: info.min_key,
            ulMaxKeySize: info.max_key,
            flags: info.flags,
        })
    }

    /// C_GetMechanismList.
    pub fn mechanism_list(&self) -> Result<Vec<CK_MECHANISM_TYPE>> {
        self.check_present()?;
        let catalogue = self.objects.catalogue();
        let all = catalogue.mechanisms.all().iter();
        Ok(all.map(|info| info.kind).collect())
    }

    /// C_OpenSession.
    pub fn open(&self, flags: CK_FLAGS) -> Result<u64> {
        if flags & CKF_SERIAL_SESSION == 0 {
            return Err(Rv(CKR_SESSION_PARALLEL_NOT_SUPPORTED));
        }
        self.check_present()?;
        // A write-protected token does not refuse read/write sessions: many programs open no others,
        // and session objects may be made in them.
        Ok(self.sessions.open(flags & CKF_RW_SESSION != 0))
    }

    /// C_GetSessionInfo.
    pub fn session_info(&self, session: u64) -> Result<CK_SESSION_INFO> {
        let session = self.sessions.get(session)?;
        let writes = if session.writes { CKF_RW_SESSION } else { 0 };
        Ok(CK_SESSION_INFO {
            slotID: SLOT,
            state: match (self.is_user(), session.writes) {
                (true, true) => CKS_RW_USER_FUNCTIONS,
                (true, false) => CKS_RO_USER_FUNCTIONS,
                (false, true) => CKS_RW_PUBLIC_SESSION,
                (false, false) => CKS_RO_PUBLIC_SESSION,
            },
            flags: CKF_SERIAL_SESSION | writes,
            ulDeviceError: 0,
        })
    }
}

/// The flags of the pool that concern applications; the counters are those of the members' own PINs.
const APPLICATIONS: TokenFlags = TokenFlags::RNG
    .union(TokenFlags::WRITE_PROTECTED)
    .union(TokenFlags::LOGIN_REQUIRED)
    .union(TokenFlags::USER_PIN_INITIALIZED)
    .union(TokenFlags::PROTECTED_AUTHENTICATION_PATH)
    .union(TokenFlags::TOKEN_INITIALIZED);
