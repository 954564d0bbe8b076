//! A key of the provider's, as OpenSSL comes to it and uses it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::MutexGuard;

use hsmux_software::{pem, reference};
use hsmux_token::fake::write_secret;
use p256::ecdsa::signature::Verifier;
use p256::ecdsa::{Signature, VerifyingKey};

use crate::calls::{PIN, alone};
use crate::openssl::*;
use crate::server::Server;

pub type New = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
pub type Free = unsafe extern "C" fn(*mut c_void);
pub type NewContext = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
pub type Init =
    unsafe extern "C" fn(*mut c_void, *const c_char, *const c_void, *const Param) -> c_int;
pub type Final = unsafe extern "C" fn(*mut c_void, *mut u8, *mut usize, usize) -> c_int;
pub type Take = unsafe extern "C" fn(*const Param, *mut c_void) -> c_int;
type Decode = unsafe extern "C" fn(
    *mut c_void,
    *mut Bio,
    c_int,
    Take,
    *mut c_void,
    *const c_void,
    *mut c_void,
) -> c_int;

const MESSAGE: &[u8] = b"what is signed";

/// A daemon that wants its PIN, and OpenSSL with the provider.
pub struct Place {
    pub openssl: OpenSsl,
    pub server: Option<Server>,
    pub socket: PathBuf,
    pub folder: tempfile::TempDir,
    _one_at_a_time: MutexGuard<'static, ()>,
}

pub fn place() -> Place {
    let turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    write_secret(&folder.path().join("pin"), [PIN, b"\n"].concat());
    Place {
        openssl: OpenSsl::load(&socket),
        server: Some(Server::start(&socket)),
        socket,
        folder,
        _one_at_a_time: turn,
    }
}

impl Place {
    /// A certificate, and a reference to a key of this label, with the PIN's file.
    pub fn file(&self, label: &str) -> String {
        let pin = self.folder.path().join("pin");
        let uri = format!("pkcs11:object={label}?pin-source=file:{}", pin.display());
        file(&uri)
    }

    /// The key of this family that the provider makes of a file.
    pub fn load(&self, file: &str, family: &str) -> Option<Key<'_>> {
        let mut bio = Bio(file.as_bytes());
        let decoder = self.openssl.fetch(DECODER, "DER", "input=pem");
        let mut found = None;
        while found.is_none() && !bio.0.is_empty() {
            found = self.decode(decoder, &mut bio, c"data", None);
        }
        let der = found?;
        let decoder = self.openssl.fetch(DECODER, family, "input=der");
        let manager = self.openssl.fetch(KEYMGMT, family, "");
        let key = self.decode(decoder, &mut Bio(&der), c"reference", Some(manager))?;
        let data = usize::from_ne_bytes(key.try_into().unwrap()) as *mut c_void;
        Some(Key {
            openssl: &self.openssl,
            manager,
            data,
        })
    }

    /// The result of a decoder of this name; a reference is loaded at once, as OpenSSL does.
    fn decode(
        &self,
        decoder: Table,
        bio: &mut Bio,
        name: &'static CStr,
        manager: Option<Table>,
    ) -> Option<Vec<u8>> {
        struct Taken {
            name: &'static CStr,
            manager: Option<Table>,
            value: Option<Vec<u8>>,
        }
        unsafe extern "C" fn take(mut params: *const Param, taken: *mut c_void) -> c_int {
            type Load = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
            unsafe {
                let taken = &mut *taken.cast::<Taken>();
                while CStr::from_ptr((*params).key) != taken.name {
                    params = params.add(1);
                }
                let param = &*params;
                taken.value = Some(match taken.manager {
                    None => std::slice::from_raw_parts(param.data.cast(), param.size).to_vec(),
                    Some(manager) => {
                        let load: Load = manager.get(8);
                        (load(param.data, param.size) as usize)
                            .to_ne_bytes()
                            .to_vec()
                    }
                });
            }
            1
        }
        let mut taken = Taken {
            name,
            manager,
            value: None,
        };
        unsafe {
            let (new, free): (New, Free) = (decoder.get(1), decoder.get(2));
            let decode: Decode = decoder.get(11);
            let context = new(self.openssl.provider);
            let argument = (&raw mut taken).cast();
            let answer = decode(context, bio, 0, take, argument, null(), null_mut());
            assert_eq!(answer, 1);
            free(context);
        }
        taken.value
    }
}

pub fn file(uri: &str) -> String {
    let certificate = pem::encode("CERTIFICATE", b"not looked at");
    certificate + &reference::to_pem(&uri.parse().unwrap()).unwrap()
}

/// A key as OpenSSL holds it.
pub struct Key<'a> {
    pub openssl: &'a OpenSsl,
    pub manager: Table,
    pub data: *mut c_void,
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        unsafe { self.manager.get::<Free>(10)(self.data) };
    }
}

impl Key<'_> {
    pub fn parameter(&self, name: &'static CStr, kind: u32) -> Vec<u8> {
        type Get = unsafe extern "C" fn(*mut c_void, *mut Param) -> c_int;
        let mut place = [0; 200];
        let mut params = [param(name, kind, &mut place), END];
        if kind == INTEGER {
            params[0].size = 4;
        }
        let got = unsafe { self.manager.get::<Get>(11)(self.data, params.as_mut_ptr()) };
        assert_eq!(got, 1);
        let len = params[0].returned;
        place[..len].to_vec()
    }

    pub fn number(&self, name: &'static CStr) -> i32 {
        i32::from_ne_bytes(self.parameter(name, INTEGER).try_into().unwrap())
    }

    /// EVP_DigestSign, in two parts.
    pub fn sign(&self, algorithm: &str) -> Option<Vec<u8>> {
        type Update = unsafe extern "C" fn(*mut c_void, *const u8, usize) -> c_int;
        let table = self.openssl.fetch(SIGNATURE, algorithm, "");
        let (first, rest) = MESSAGE.split_at(4);
        unsafe {
            let (init, update, finish): (Init, Update, Final) =
                (table.get(8), table.get(9), table.get(10));
            let context = table.get::<NewContext>(1)(self.openssl.provider, null());
            assert_eq!(init(context, c"SHA2-256".as_ptr(), self.data, null()), 1);
            let mut good = [first, rest]
                .iter()
                .all(|part| update(context, part.as_ptr(), part.len()) == 1);
            let mut len = 0;
            good &= finish(context, null_mut(), &raw mut len, 0) == 1;
            let mut signature = vec![0; len];
            // OpenSSL signs with a copy: more data may follow.
            let copy = table.get::<unsafe extern "C" fn(*const c_void) -> *mut c_void>(17)(context);
            good &= finish(copy, signature.as_mut_ptr(), &raw mut len, signature.len()) == 1;
            table.get::<Free>(16)(copy);
            table.get::<Free>(16)(context);
            signature.truncate(len);
            good.then_some(signature)
        }
    }

    pub fn verifies(&self, signature: &[u8]) -> bool {
        let point = self.parameter(c"pub", OCTETS);
        let key = VerifyingKey::from_sec1_bytes(&point).unwrap();
        let signature = Signature::from_der(signature);
        signature.is_ok_and(|signature| key.verify(MESSAGE, &signature).is_ok())
    }
}
