//! From a PEM file to a key (provider-decoder(7)): a reference's block to its DER, and that to a key of either family.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use hsmux_software::{pem, reference};
use hsmux_token::{Error, KeyKind, Kind, Result};
use zeroize::Zeroizing;

use super::abi::{Algorithm, Callback, Dispatch, OCTETS, Opaque, Param};
use super::guard::callbacks;
use super::init::Provider;
use super::keymgmt::KeyData;
use super::param::ParamArray;
use crate::provider::value::ParamValue;
use crate::provider::{names, pem as block};

/// The result of a decoder that has found nothing: OpenSSL asks the next one.
const GO_ON: c_int = 1;

/// OSSL_OBJECT_PKEY.
const KEY: i64 = 2;

/// The longest line, and the longest DER, of a reference.
const LINE: usize = 1 << 10;
const DER: usize = 1 << 12;

pub static ALGORITHMS: [Algorithm; 4] = [
    Algorithm::new(c"DER", c"provider=hsmux,input=pem", &PEM_TO_DER),
    Algorithm::new(
        c"RSA:rsaEncryption:1.2.840.113549.1.1.1",
        c"provider=hsmux,input=der,structure=hsmux-reference",
        &DER_TO_RSA,
    ),
    Algorithm::new(
        c"EC:id-ecPublicKey:1.2.840.10045.2.1",
        c"provider=hsmux,input=der,structure=hsmux-reference",
        &DER_TO_EC,
    ),
    Algorithm::END,
];

static PEM_TO_DER: [Dispatch; 4] = functions(pem_to_der as *const ());
static DER_TO_RSA: [Dispatch; 4] = functions(der_to_rsa as *const ());
static DER_TO_EC: [Dispatch; 4] = functions(der_to_ec as *const ());

const fn functions(decode: *const ()) -> [Dispatch; 4] {
    [
        Dispatch::new(1, new_context as *const ()),
        Dispatch::new(2, free_context as *const ()),
        Dispatch::new(11, decode),
        Dispatch::END,
    ]
}

callbacks! {
    /// A decoder has no state but the provider's.
    fn new_context(provider: *const Provider) -> *const Provider {
        provider
    }

    fn free_context(_provider: *const Provider) {}

    fn pem_to_der(
        provider: *const Provider,
        input: *mut Opaque,
        _selection: c_int,
        take: Callback,
        argument: *mut c_void,
        _passphrase: *const Opaque,
        _passphrase_argument: *mut c_void,
    ) -> c_int {
        let core = &(*provider).core;
        let line = || {
            let mut buffer = Zeroizing::new([0; LINE]);
            let len = core.line(input, &mut *buffer);
            let line = String::from_utf8_lossy(&buffer[..len]).into_owned();
            (len > 0).then(|| Zeroizing::new(line))
        };
        let block = block::next(reference::LABEL, line);
        let block = block.filter(|block| block.label == reference::LABEL);
        let Some(block) = block else {
            return GO_ON;
        };
        let der = match reference_of(&block.body) {
            Ok(der) => der,
            Err(error) => {
                (*provider).told::<()>(Err(error));
                return GO_ON;
            }
        };
        let array = ParamArray::of([
            (c"data", ParamValue::Bytes(der.into())),
            (c"data-structure", ParamValue::Name(names::STRUCTURE)),
        ]);
        take(array.as_ptr(), argument)
    }

    fn der_to_rsa(
        provider: *const Provider,
        input: *mut Opaque,
        _selection: c_int,
        take: Callback,
        argument: *mut c_void,
        _passphrase: *const Opaque,
        _passphrase_argument: *mut c_void,
    ) -> c_int {
        der_to_key(&*provider, input, (KeyKind::Rsa, c"RSA"), take, argument)
    }

    fn der_to_ec(
        provider: *const Provider,
        input: *mut Opaque,
        _selection: c_int,
        take: Callback,
        argument: *mut c_void,
        _passphrase: *const Opaque,
        _passphrase_argument: *mut c_void,
    ) -> c_int {
        der_to_key(&*provider, input, (KeyKind::Ec, c"EC"), take, argument)
    }
}

/// The DER of a reference, from the lines of its block.
fn reference_of(body: &str) -> Result<Vec<u8>> {
    let is_one = |der: &Vec<u8>| reference::from_der(der).map(|_| ());
    let der = pem::decode(body).ok_or_else(|| Error::request(Kind::Invalid, "not base64"));
    der.and_then(|der| is_one(&der).map(|()| der))
        .map_err(|error| {
            let message = format!(
                "{}: {error}; write the block anew: hsmux key reference URI",
                reference::LABEL
            );
            Error::request(Kind::Invalid, message)
        })
}

/// Gives the key that a reference names, if it is of the family that is asked for.
unsafe fn der_to_key(
    provider: &Provider,
    input: *mut Opaque,
    (kind, name): (KeyKind, &'static CStr),
    take: Callback,
    argument: *mut c_void,
) -> c_int {
    // The input may be anything, even a key in the clear.
    let mut buffer = Zeroizing::new([0; DER]);
    let mut len = 0;
    loop {
        // SAFETY: the input is the core's.
        match unsafe { provider.core.read(input, &mut buffer[len..]) } {
            0 => break,
            got => len += got,
        }
    }
    let Ok(uri) = reference::from_der(&buffer[..len]) else {
        return GO_ON;
    };
    let Some(key) = provider.told(provider.context.find(&uri)) else {
        return GO_ON;
    };
    if key.public.kind() != kind {
        return GO_ON;
    }
    // The loader of the key takes it from here.
    let held = KeyData {
        core: provider.core,
        key: Some(Arc::new(key)),
    };
    let mut place: *mut KeyData = Box::into_raw(Box::new(held));
    let values = [
        (c"type", ParamValue::Int(KEY)),
        (c"data-type", ParamValue::Name(name)),
    ];
    let size = size_of::<*mut KeyData>();
    let reference = Param::new(c"reference", OCTETS, (&raw mut place).cast(), size);
    let array = ParamArray::of(values).with(reference);
    // SAFETY: OpenSSL's own callback with its own argument.
    let answer = unsafe { take(array.as_ptr(), argument) };
    if !place.is_null() {
        // SAFETY: it was made above and not taken.
        drop(unsafe { Box::from_raw(place) });
    }
    answer
}
