//! Objects and their attributes (PKCS#11 3.0, section 5.7).

use bytes::Bytes;
use hsmux_token::ck::{
    CK_ATTRIBUTE, CK_UNAVAILABLE_INFORMATION, CKR_ATTRIBUTE_SENSITIVE, CKR_ATTRIBUTE_TYPE_INVALID,
    CKR_DEVICE_ERROR,
};
use hsmux_token::{Attribute, Attributes, Blob, Error, Result};

use super::{Handle, Library, Session, call};
use crate::template::Template;

/// The number of handles that one C_FindObjects asks for.
const CHUNK: usize = 256;
/// A greater total length of an object's attributes is a module's error: only the shortest ones are read.
const LONGEST: u64 = 1 << 24;
/// More objects than any token has: the search ends.
const MOST_FOUND: usize = 1 << 20;
/// A length that no module sets, to recognise attributes that it skipped.
const UNTOUCHED: u64 = u64::MAX - 1;

impl Library {
    /// C_FindObjectsInit, C_FindObjects, C_FindObjectsFinal: at most `most` handles.
    pub(crate) fn find(
        &self,
        session: Session,
        template: &Attributes,
        most: usize,
    ) -> Result<Vec<Handle>> {
        let mut raw = Template::new(template)?;
        let (place, len) = raw.raw();
        // SAFETY: `len` attributes that live as long as `raw`.
        unsafe { call!(self, C_FindObjectsInit(session, place, len)) }?;
        let found = self.found(session, most);
        // SAFETY: no pointers.
        let ended = unsafe { call!(self, C_FindObjectsFinal(session)) };
        let found = found?;
        ended?;
        Ok(found)
    }

    fn found(&self, session: Session, most: usize) -> Result<Vec<Handle>> {
        let mut all = Vec::new();
        let mut chunk = [0; CHUNK];
        while all.len() < most {
            let room = CHUNK.min(most - all.len());
            let mut len = 0;
            // SAFETY: room for `room` handles, and a place for their number.
            unsafe {
                call!(
                    self,
                    C_FindObjects(session, chunk.as_mut_ptr(), room as u64, &raw mut len)
                )
            }?;
            if len == 0 {
                break;
            }
            all.extend_from_slice(&chunk[..room.min(len as usize)]);
            if all.len() > MOST_FOUND {
                let error = Error::vendor("C_FindObjects", CKR_DEVICE_ERROR);
                return Err(error.at(format!("finds more than {MOST_FOUND} objects")));
            }
        }
        Ok(all)
    }

    /// C_GetAttributeValue: those of `kinds` that the object has and shows. One call gets all lengths, one all values.
    /// Against the standard some modules stop at the first missing attribute; the rest is then read one by one.
    pub(crate) fn attributes(
        &self,
        session: Session,
        object: Handle,
        kinds: &[u64],
    ) -> Result<Attributes> {
        let mut lengths: Vec<_> = kinds.iter().map(|&kind| asked(kind)).collect();
        let code = self.get_attributes(session, object, &mut lengths);
        for one in &mut lengths {
            if one.ulValueLen == UNTOUCHED {
                self.get_attributes(session, object, std::slice::from_mut(one))?;
            }
        }
        code?;
        leave_out_longest(&mut lengths);
        if lengths.is_empty() {
            return Ok(Attributes::default());
        }
        let total = lengths.iter().map(|a| a.ulValueLen as usize).sum();
        let mut values = vec![0_u8; total];
        let mut rest = &mut values[..];
        for attribute in &mut lengths {
            let (place, behind) = rest.split_at_mut(attribute.ulValueLen as usize);
            attribute.pValue = place.as_mut_ptr().cast();
            rest = behind;
        }
        let places: Vec<_> = lengths.iter().map(|a| a.ulValueLen as usize).collect();
        self.get_attributes(session, object, &mut lengths)?;
        let values = Bytes::from(values);
        let mut at = 0;
        let read = lengths.iter().zip(places).filter_map(|(attribute, place)| {
            let start = at;
            at += place;
            // A value may be shorter than announced. If it is longer or unavailable, it is omitted.
            let len = usize::try_from(attribute.ulValueLen).ok()?;
            (len <= place).then(|| Attribute {
                kind: attribute.type_,
                value: Blob(values.slice(start..start + len)),
            })
        });
        Ok(Attributes(read.collect()))
    }

    /// One C_GetAttributeValue. Sensitive or missing attributes are no error.
    fn get_attributes(
        &self,
        session: Session,
        object: Handle,
        attributes: &mut [CK_ATTRIBUTE],
    ) -> Result<()> {
        // SAFETY: each `pValue` is null or has room for `ulValueLen` bytes.
        let done = unsafe {
            call!(
                self,
                C_GetAttributeValue(
                    session,
                    object,
                    attributes.as_mut_ptr(),
                    attributes.len() as u64
                )
            )
        };
        let Err(error) = done else { return Ok(()) };
        match error.code() {
            Some(CKR_ATTRIBUTE_SENSITIVE | CKR_ATTRIBUTE_TYPE_INVALID) => {
                // The only requested attribute is missing.
                if let [one] = attributes {
                    one.ulValueLen = CK_UNAVAILABLE_INFORMATION;
                }
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// C_CreateObject.
    pub(crate) fn create(&self, session: Session, template: &Attributes) -> Result<Handle> {
        let mut raw = Template::new(template)?;
        made(&mut raw, |place, len, handle| {
            // SAFETY: `len` attributes, and a place for one handle.
            unsafe { call!(self, C_CreateObject(session, place, len, handle)) }
        })
    }

    /// C_CopyObject.
    pub(crate) fn copy(
        &self,
        session: Session,
        object: Handle,
        template: &Attributes,
    ) -> Result<Handle> {
        let mut raw = Template::new(template)?;
        made(&mut raw, |place, len, handle| {
            // SAFETY: `len` attributes, and a place for one handle.
            unsafe { call!(self, C_CopyObject(session, object, place, len, handle)) }
        })
    }

    /// C_SetAttributeValue.
    pub(crate) fn set_attributes(
        &self,
        session: Session,
        object: Handle,
        template: &Attributes,
    ) -> Result<()> {
        let mut raw = Template::new(template)?;
        let (place, len) = raw.raw();
        // SAFETY: `len` attributes that live as long as `raw`.
        unsafe { call!(self, C_SetAttributeValue(session, object, place, len)) }
    }

    /// C_DestroyObject.
    pub(crate) fn destroy(&self, session: Session, object: Handle) -> Result<()> {
        // SAFETY: no pointers.
        unsafe { call!(self, C_DestroyObject(session, object)) }
    }
}

/// Drops missing attributes, and the longest ones if the total exceeds [`LONGEST`].
fn leave_out_longest(lengths: &mut Vec<CK_ATTRIBUTE>) {
    lengths.retain(|a| a.ulValueLen <= LONGEST);
    while lengths.iter().map(|a| a.ulValueLen).sum::<u64>() > LONGEST
        && let Some(longest) = lengths.iter().map(|a| a.ulValueLen).max()
    {
        lengths.retain(|a| a.ulValueLen < longest);
    }
}

fn asked(kind: u64) -> CK_ATTRIBUTE {
    CK_ATTRIBUTE {
        type_: kind,
        pValue: std::ptr::null_mut(),
        ulValueLen: UNTOUCHED,
    }
}

/// Runs a call that takes a template and returns a handle.
pub(super) fn made(
    template: &mut Template,
    make: impl FnOnce(*mut CK_ATTRIBUTE, u64, *mut Handle) -> Result<()>,
) -> Result<Handle, Error> {
    let (place, len) = template.raw();
    let mut handle = 0;
    make(place, len, &raw mut handle)?;
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_one_object_have_so_many_bytes() {
        let half = LONGEST / 2;
        for (announced, read) in [
            (
                &[3, UNTOUCHED, CK_UNAVAILABLE_INFORMATION, LONGEST + 1][..],
                &[3][..],
            ),
            (&[half, 7, half], &[7]),
            (&[half, 7, half - 7], &[half, 7, half - 7]),
            (&[LONGEST; 30], &[]),
        ] {
            let mut lengths: Vec<_> = announced.iter().map(|_| asked(0)).collect();
            for (one, len) in lengths.iter_mut().zip(announced) {
                one.ulValueLen = *len;
            }
            leave_out_longest(&mut lengths);
            let left: Vec<_> = lengths.iter().map(|one| one.ulValueLen).collect();
            assert_eq!(left, read);
        }
    }
}
