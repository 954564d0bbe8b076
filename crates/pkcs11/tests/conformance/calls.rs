//! The C functions as a test calls them: on a soft token, one test at a time.

use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hsmux_pkcs11::backend::EmbeddedBackend;
use hsmux_pkcs11::entry::*;
use hsmux_pkcs11::library;
use hsmux_token::ck::*;
use hsmux_token::{Attribute, Attributes, Secret};

use crate::soft::{Soft, soft};

pub const PIN: &[u8] = b"2468";
pub const SLOT: CK_SLOT_ID = 1;
/// The fill of buffers, which shows the bytes that were not written.
pub const FILL: u8 = 0xee;

pub type Handle = CK_ULONG;
pub type Answer<T = ()> = Result<T, CK_RV>;

/// CKR_OK or the code.
pub fn ok(code: CK_RV) -> Answer {
    if code == CKR_OK { Ok(()) } else { Err(code) }
}

/// The initialised library; finalised at the end of the test.
pub struct Library {
    pub soft: Soft,
    _one_at_a_time: MutexGuard<'static, ()>,
}

pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn library() -> Library {
    let turn = alone();
    let soft = soft();
    initialise(&soft).unwrap();
    Library {
        soft,
        _one_at_a_time: turn,
    }
}

pub fn initialise(soft: &Soft) -> Answer {
    let token = soft.token.clone();
    let pin = Secret::new(PIN.to_vec());
    let backend = EmbeddedBackend::new(token, Some(pin), Duration::from_secs(60));
    library::initialise(|| Ok(Box::new(backend))).map_err(|rv| rv.0)
}

impl Library {
    /// How often the token was asked for something.
    pub fn calls(&self) -> usize {
        self.soft.calls.load(Ordering::Relaxed)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        unsafe { C_Finalize(null_mut()) };
    }
}

/// A session, and calls on it.
#[derive(Clone, Copy)]
pub struct Session(pub Handle);

pub fn open(flags: CK_FLAGS) -> Answer<Session> {
    let mut session = 0;
    ok(unsafe {
        C_OpenSession(
            SLOT,
            flags | CKF_SERIAL_SESSION,
            null_mut(),
            None,
            &mut session,
        )
    })?;
    Ok(Session(session))
}

/// A read/write session, logged in.
pub fn user() -> Session {
    let session = open(CKF_RW_SESSION).unwrap();
    session.login(PIN).unwrap();
    session
}

/// A CK_MECHANISM over a parameter that outlives it.
pub fn mechanism<T>(kind: CK_MECHANISM_TYPE, parameter: &T) -> CK_MECHANISM {
    CK_MECHANISM {
        mechanism: kind,
        pParameter: std::ptr::from_ref(parameter).cast_mut().cast(),
        ulParameterLen: size_of::<T>() as CK_ULONG,
    }
}

pub fn plain(kind: CK_MECHANISM_TYPE) -> CK_MECHANISM {
    CK_MECHANISM {
        mechanism: kind,
        pParameter: null_mut(),
        ulParameterLen: 0,
    }
}

/// A template as C has it, with the values that it points to.
pub struct Raw {
    template: Vec<CK_ATTRIBUTE>,
    _values: Attributes,
}

pub fn raw(template: &Attributes) -> Raw {
    let attribute = |a: &Attribute| CK_ATTRIBUTE {
        type_: a.kind,
        pValue: a.value.as_ptr().cast_mut().cast(),
        ulValueLen: a.value.len() as CK_ULONG,
    };
    Raw {
        template: template.0.iter().map(attribute).collect(),
        _values: template.clone(),
    }
}

impl std::ops::Deref for Raw {
    type Target = Vec<CK_ATTRIBUTE>;
    fn deref(&self) -> &Vec<CK_ATTRIBUTE> {
        &self.template
    }
}

impl std::ops::DerefMut for Raw {
    fn deref_mut(&mut self) -> &mut Vec<CK_ATTRIBUTE> {
        &mut self.template
    }
}

/// A call with an answer, given so much room: its code, the length it says, and the bytes.
pub fn given(
    room: usize,
    call: impl FnOnce(*mut u8, *mut CK_ULONG) -> CK_RV,
) -> (CK_RV, usize, Vec<u8>) {
    let mut data = vec![FILL; room];
    let mut len = room as CK_ULONG;
    let code = call(data.as_mut_ptr(), &mut len);
    if code == CKR_OK {
        data.truncate(len as usize);
    }
    (code, len as usize, data)
}

/// A length query: its code and the length it says.
pub fn asked(call: impl FnOnce(*mut u8, *mut CK_ULONG) -> CK_RV) -> Answer<usize> {
    let mut len = 0;
    ok(call(null_mut(), &mut len))?;
    Ok(len as usize)
}

/// As programs do it: ask for the length, then for the answer.
pub fn twice(call: impl Fn(*mut u8, *mut CK_ULONG) -> CK_RV) -> Answer<Vec<u8>> {
    let room = asked(&call)?;
    let (code, _, data) = given(room, &call);
    ok(code)?;
    Ok(data)
}

pub type Init = unsafe extern "C" fn(Handle, *mut CK_MECHANISM, Handle) -> CK_RV;
pub type Whole = unsafe extern "C" fn(Handle, *mut u8, CK_ULONG, *mut u8, *mut CK_ULONG) -> CK_RV;
pub type Final = unsafe extern "C" fn(Handle, *mut u8, *mut CK_ULONG) -> CK_RV;
type Feed = unsafe extern "C" fn(Handle, *mut u8, CK_ULONG) -> CK_RV;

impl Session {
    pub fn login(self, pin: &[u8]) -> Answer {
        self.login_as(CKU_USER, pin)
    }

    pub fn login_as(self, user: CK_USER_TYPE, pin: &[u8]) -> Answer {
        ok(unsafe { C_Login(self.0, user, pin.as_ptr().cast_mut(), pin.len() as CK_ULONG) })
    }

    pub fn init(self, init: Init, mut mechanism: CK_MECHANISM, key: Handle) -> Answer {
        ok(unsafe { init(self.0, &mut mechanism, key) })
    }

    pub fn digest_init(self, kind: CK_MECHANISM_TYPE) -> Answer {
        ok(unsafe { C_DigestInit(self.0, &mut plain(kind)) })
    }

    /// For [`given`], [`asked`] and [`twice`].
    pub fn whole(self, whole: Whole, data: &[u8]) -> impl Fn(*mut u8, *mut CK_ULONG) -> CK_RV {
        let (data, len) = (data.as_ptr().cast_mut(), data.len() as CK_ULONG);
        move |out, out_len| unsafe { whole(self.0, data, len, out, out_len) }
    }

    /// For [`given`], [`asked`] and [`twice`].
    pub fn last(self, last: Final) -> impl Fn(*mut u8, *mut CK_ULONG) -> CK_RV {
        move |out, out_len| unsafe { last(self.0, out, out_len) }
    }

    pub fn feed(self, feed: Feed, part: &[u8]) -> Answer {
        ok(unsafe { feed(self.0, part.as_ptr().cast_mut(), part.len() as CK_ULONG) })
    }

    pub fn verify(self, data: &[u8], signature: &[u8]) -> Answer {
        ok(unsafe {
            C_Verify(
                self.0,
                data.as_ptr().cast_mut(),
                data.len() as CK_ULONG,
                signature.as_ptr().cast_mut(),
                signature.len() as CK_ULONG,
            )
        })
    }

    /// The handles of all objects that match, found two at a time.
    pub fn find(self, template: &Attributes) -> Answer<Vec<Handle>> {
        let mut raw = raw(template);
        ok(unsafe { C_FindObjectsInit(self.0, raw.as_mut_ptr(), raw.len() as CK_ULONG) })?;
        let mut found = Vec::new();
        loop {
            let mut some = [0; 2];
            let mut count = 0;
            ok(unsafe { C_FindObjects(self.0, some.as_mut_ptr(), 2, &mut count) })?;
            found.extend(&some[..count as usize]);
            if count == 0 {
                break;
            }
        }
        ok(unsafe { C_FindObjectsFinal(self.0) })?;
        Ok(found)
    }

    /// The one object of a class and label.
    pub fn one(self, class: u64, label: &str) -> Handle {
        let found = self.find(&wanted(class, label)).unwrap();
        assert_eq!(found.len(), 1, "{label}");
        found[0]
    }

    pub fn get(self, object: Handle, kind: CK_ATTRIBUTE_TYPE) -> Answer<Vec<u8>> {
        let mut attribute = CK_ATTRIBUTE {
            type_: kind,
            pValue: null_mut(),
            ulValueLen: 0,
        };
        ok(unsafe { C_GetAttributeValue(self.0, object, &mut attribute, 1) })?;
        let mut value = vec![0; attribute.ulValueLen as usize];
        attribute.pValue = value.as_mut_ptr().cast();
        ok(unsafe { C_GetAttributeValue(self.0, object, &mut attribute, 1) })?;
        Ok(value)
    }

    pub fn create(self, template: &Attributes) -> Answer<Handle> {
        let mut object = 0;
        let mut raw = raw(template);
        ok(unsafe {
            C_CreateObject(self.0, raw.as_mut_ptr(), raw.len() as CK_ULONG, &mut object)
        })?;
        Ok(object)
    }

    pub fn destroy(self, object: Handle) -> Answer {
        ok(unsafe { C_DestroyObject(self.0, object) })
    }

    pub fn close(self) -> Answer {
        ok(unsafe { C_CloseSession(self.0) })
    }

    pub fn state(self) -> Answer<CK_STATE> {
        let mut info = CK_SESSION_INFO::default();
        ok(unsafe { C_GetSessionInfo(self.0, &mut info) })?;
        Ok(info.state)
    }
}

pub fn wanted(class: u64, label: &str) -> Attributes {
    Attributes::default()
        .with_number(CKA_CLASS, class)
        .with(CKA_LABEL, label.as_bytes().to_vec())
}

/// A null pointer, for calls that must refuse it.
pub const NOTHING: *const u8 = null();
