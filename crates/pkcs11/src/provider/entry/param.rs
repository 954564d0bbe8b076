//! OpenSSL's arrays of parameters become values, and values are put into them (OSSL_PARAM(3)).

use std::ffi::{CStr, c_char, c_void};

use hsmux_token::{Error, Kind, Result};

use super::abi::{self, Param};
use crate::provider::value::ParamValue;

/// The parameters of an array, as pointers: several threads may read the same, and only places for answers are
/// written to.
///
/// # Safety
/// `params` is null or the begin of an array with an end, valid for as long as what comes of it is used.
pub unsafe fn all(params: *mut Param) -> impl Iterator<Item = *mut Param> {
    let mut at = params;
    std::iter::from_fn(move || {
        // SAFETY: null, or within the array, whose end has not been gone past.
        if at.is_null() || unsafe { (*at).key.is_null() } {
            return None;
        }
        let param = at;
        // SAFETY: this entry is not the end, so another one follows.
        at = unsafe { at.add(1) };
        Some(param)
    })
}

/// The names and values of an array, without those that have no value.
///
/// # Safety
///
/// As of [`all`]; and no thread writes to it meanwhile.
pub unsafe fn values<'a>(params: *mut Param) -> impl Iterator<Item = (&'a CStr, ParamValue<'a>)> {
    // SAFETY: by this function's own contract, here and below.
    unsafe { all(params) }.filter_map(|param| unsafe {
        let param = &*param;
        Some((param.name(), param.value()?))
    })
}

/// Puts the values that an array asks for; unknown parameters stay unchanged.
///
/// # Safety
///
/// As of [`all`], and its places can be written to.
pub unsafe fn answer<'v>(
    params: *mut Param,
    value: impl Fn(&CStr) -> Result<Option<ParamValue<'v>>>,
) -> Result<()> {
    // SAFETY: by this function's own contract.
    for param in unsafe { all(params) } {
        // SAFETY: as above; no other thread reads it meanwhile.
        let param = unsafe { &mut *param };
        // SAFETY: as above.
        let Some(value) = value(unsafe { param.name() })? else {
            continue;
        };
        // SAFETY: as above.
        if !unsafe { param.put(&value) } {
            // SAFETY: as above.
            let name = unsafe { param.name() };
            let message = format!(
                "{name:?} does not go into {} bytes of type {}",
                param.size, param.kind
            );
            return Err(Error::request(Kind::Invalid, message));
        }
    }
    Ok(())
}

impl Param {
    /// Its name.
    ///
    /// # Safety
    /// It is one of OpenSSL's, or has the name of a static.
    pub unsafe fn name(&self) -> &CStr {
        // SAFETY: by this function's own contract, a name ends with a zero.
        unsafe { CStr::from_ptr(self.key) }
    }

    /// Its value, if it has one that can be read.
    ///
    /// # Safety
    /// Its data are null or valid for its size.
    pub unsafe fn value(&self) -> Option<ParamValue<'_>> {
        if self.data.is_null() {
            return None;
        }
        let bytes = if self.kind == abi::UTF8_PTR {
            // SAFETY: of this kind the data are a pointer to a text.
            let text = unsafe { *self.data.cast::<*const c_char>() };
            // SAFETY: it is null, or ends with a zero.
            return (!text.is_null())
                .then(|| unsafe { CStr::from_ptr(text) })
                .and_then(|text| text.to_str().ok())
                .map(ParamValue::Text);
        } else {
            // SAFETY: by this function's own contract.
            unsafe { std::slice::from_raw_parts(self.data.cast::<u8>(), self.size) }
        };
        match (self.kind, self.size) {
            (abi::INTEGER, 4) => Some(ParamValue::Int(
                i32::from_ne_bytes(bytes.try_into().ok()?).into(),
            )),
            (abi::INTEGER, 8) => Some(ParamValue::Int(i64::from_ne_bytes(bytes.try_into().ok()?))),
            (abi::UNSIGNED, _) => Some(ParamValue::Number(turned(bytes).into())),
            (abi::UTF8, _) => {
                // The size of a text may count its zero.
                let text = bytes.split(|byte| *byte == 0).next()?;
                std::str::from_utf8(text).ok().map(ParamValue::Text)
            }
            (abi::OCTETS, _) => Some(ParamValue::Bytes(bytes.into())),
            _ => None,
        }
    }

    /// Puts a value there, or its length where only that is asked for; `false` if it does not fit.
    ///
    /// # Safety
    /// Its data are null or writable for its size.
    pub unsafe fn put(&mut self, value: &ParamValue) -> bool {
        let number;
        let bytes: &[u8] = match (self.kind, value) {
            (abi::UTF8_PTR, ParamValue::Name(text)) => {
                self.returned = text.to_bytes().len();
                if !self.data.is_null() {
                    // SAFETY: of this kind the data are a place for a pointer.
                    unsafe { *self.data.cast::<*const c_void>() = text.as_ptr().cast() };
                }
                return true;
            }
            (abi::INTEGER | abi::UNSIGNED, ParamValue::Int(int)) => {
                number = int.to_be_bytes();
                &number
            }
            (abi::UNSIGNED, ParamValue::Number(bytes))
            | (abi::OCTETS, ParamValue::Bytes(bytes)) => bytes,
            (abi::UTF8, ParamValue::Text(text)) => text.as_bytes(),
            (abi::UTF8, ParamValue::Name(text)) => text.to_bytes(),
            _ => return false,
        };
        let is_number = matches!(self.kind, abi::INTEGER | abi::UNSIGNED);
        let bytes = match (value, self.size) {
            // Ours are small and positive.
            (ParamValue::Int(_), 4) => &bytes[4..],
            _ => bytes,
        };
        self.returned = bytes.len();
        if self.data.is_null() {
            return true;
        }
        if bytes.len() > self.size {
            return false;
        }
        // SAFETY: by this function's own contract.
        let place = unsafe { std::slice::from_raw_parts_mut(self.data.cast::<u8>(), self.size) };
        if is_number {
            self.returned = self.size;
            let (before, last) = place.split_at_mut(self.size - bytes.len());
            before.fill(0);
            last.copy_from_slice(bytes);
            turn(place);
        } else {
            place[..bytes.len()].copy_from_slice(bytes);
            // A text's zero, where there is room for it.
            if let (abi::UTF8, Some(end)) = (self.kind, place.get_mut(bytes.len())) {
                *end = 0;
            }
        }
        true
    }
}

/// An array with values of our own, for a callback.
pub struct ParamArray {
    params: Vec<Param>,
    _values: Vec<Vec<u8>>,
}

impl ParamArray {
    /// Copies the values, none of which is a secret.
    pub fn of<'v>(values: impl IntoIterator<Item = (&'static CStr, ParamValue<'v>)>) -> Self {
        let (mut params, mut kept) = (Vec::new(), Vec::new());
        for (name, value) in values {
            let (kind, mut bytes) = match value {
                ParamValue::Int(int) => (abi::INTEGER, int.to_ne_bytes().to_vec()),
                ParamValue::Number(bytes) => (abi::UNSIGNED, turned(&bytes)),
                ParamValue::Text(text) => (abi::UTF8, text.as_bytes().to_vec()),
                ParamValue::Name(text) => (abi::UTF8, text.to_bytes().to_vec()),
                ParamValue::Bytes(bytes) => (abi::OCTETS, bytes.into_owned()),
            };
            let size = bytes.len();
            // Some look for a text's zero.
            bytes.push(0);
            params.push(Param::new(name, kind, bytes.as_mut_ptr().cast(), size));
            kept.push(bytes);
        }
        params.push(Param::END);
        Self {
            params,
            _values: kept,
        }
    }

    /// One more, whose value is elsewhere.
    pub fn with(mut self, param: Param) -> Self {
        let end = self.params.len() - 1;
        self.params.insert(end, param);
        self
    }

    /// For OpenSSL, for as long as this lives.
    pub fn as_ptr(&self) -> *const Param {
        self.params.as_ptr()
    }
}

/// The bytes of a number in this machine's order, or back.
fn turned(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    turn(&mut bytes);
    bytes
}

fn turn(bytes: &mut [u8]) {
    if cfg!(target_endian = "little") {
        bytes.reverse();
    }
}
