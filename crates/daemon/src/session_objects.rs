//! Limits the session objects of a user and their bytes. They stay in a worker's memory, and making them needs no
//! login.

use std::collections::HashMap;
use std::sync::Arc;

use hsmux_pool::Owner;
use hsmux_token::ck::{CKA_TOKEN, CKR_DEVICE_MEMORY};
use hsmux_token::{Attributes, Error, Kind, ObjectRef, Operation, Result};
use parking_lot::Mutex;

/// The most session objects of one user or host.
const MOST: usize = 4096;

/// The most bytes of their attributes.
const MOST_BYTES: usize = 16 << 20;

/// The session objects of all users.
#[derive(Clone, Default)]
pub struct SessionObjects(Arc<Mutex<HashMap<Owner, SessionObjectUsage>>>);

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct SessionObjectUsage {
    objects: usize,
    bytes: usize,
}

/// A reserved part of a user's limit. Dropping it gives it back.
pub struct SessionObjectReservation {
    of: SessionObjects,
    owner: Owner,
    amount: SessionObjectUsage,
}

impl SessionObjects {
    /// Reserves for the objects that an operation makes or extends. `None` if it does neither. An error if the user has
    /// reached the limit.
    pub fn take_for(
        &self,
        owner: Owner,
        operation: &Operation,
    ) -> Result<Option<SessionObjectReservation>> {
        let amount = SessionObjectUsage::of(operation);
        if amount == SessionObjectUsage::default() {
            return Ok(None);
        }
        let reserved = self.take(owner, amount);
        let SessionObjectUsage { objects, bytes } = self.of(owner);
        if objects > MOST || bytes > MOST_BYTES {
            let message = format!(
                "session objects of one user: {MOST} with {} MiB are the most: destroy some, or end programs that have them",
                MOST_BYTES >> 20
            );
            return Err(Error::request(Kind::Vendor(CKR_DEVICE_MEMORY), message));
        }
        Ok(Some(reserved))
    }

    /// Reserves for an object that already exists.
    pub fn take_object(&self, owner: Owner, bytes: usize) -> SessionObjectReservation {
        self.take(owner, SessionObjectUsage { objects: 1, bytes })
    }

    fn of(&self, owner: Owner) -> SessionObjectUsage {
        self.0.lock().get(&owner).copied().unwrap_or_default()
    }

    fn take(&self, owner: Owner, amount: SessionObjectUsage) -> SessionObjectReservation {
        let mut all = self.0.lock();
        all.entry(owner).or_default().add(amount);
        SessionObjectReservation {
            of: self.clone(),
            owner,
            amount,
        }
    }
}

impl SessionObjectReservation {
    /// Its bytes.
    pub fn bytes(&self) -> usize {
        self.amount.bytes
    }

    /// Adds bytes to it.
    pub fn grow(&mut self, bytes: usize) {
        let more = SessionObjectUsage { objects: 0, bytes };
        self.of.0.lock().entry(self.owner).or_default().add(more);
        self.amount.add(more);
    }
}

impl Drop for SessionObjectReservation {
    fn drop(&mut self) {
        let mut all = self.of.0.lock();
        let Some(has) = all.get_mut(&self.owner) else {
            return;
        };
        has.objects -= self.amount.objects;
        has.bytes = has.bytes.saturating_sub(self.amount.bytes);
        if *has == SessionObjectUsage::default() {
            all.remove(&self.owner);
        }
    }
}

impl SessionObjectUsage {
    fn add(&mut self, more: Self) {
        self.objects += more.objects;
        self.bytes = self.bytes.saturating_add(more.bytes);
    }

    fn of(operation: &Operation) -> Self {
        let of_session = |template: &Attributes| template.flag(CKA_TOKEN) != Some(true);
        match operation {
            Operation::GeneratePair {
                public, private, ..
            } => {
                let halves = [public, private]
                    .into_iter()
                    .filter(|half| of_session(half));
                halves.fold(Self::default(), |sum, half| Self {
                    objects: sum.objects + 1,
                    bytes: sum.bytes + half.bytes(),
                })
            }
            Operation::SetAttributes {
                object: ObjectRef::Session(_),
                template,
            } => Self {
                objects: 0,
                bytes: template.bytes(),
            },
            Operation::Create { template, .. }
            | Operation::Generate { template, .. }
            | Operation::Derive { template, .. }
            | Operation::Unwrap { template, .. }
            | Operation::Copy { template, .. }
                if operation.makes_session_objects() =>
            {
                Self {
                    objects: 1,
                    bytes: template.bytes(),
                }
            }
            _ => Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use hsmux_token::ck::CKA_VALUE;

    use super::*;

    const ONE: Owner = Owner::User(1);
    const OTHER: Owner = Owner::User(2);

    fn create(bytes: usize, on_token: bool) -> Operation {
        Operation::Create {
            template: Attributes::default()
                .with_flag(CKA_TOKEN, on_token)
                .with(CKA_VALUE, vec![0; bytes]),
            near: None,
        }
    }

    #[test]
    fn one_user_has_so_many_objects_and_another_its_own() {
        let all = SessionObjects::default();
        let small = create(1, false);
        let mut taken: Vec<_> = (0..MOST)
            .map(|_| all.take_for(ONE, &small).expect("room"))
            .collect();
        let refused = all.take_for(ONE, &small).err().expect("an error");
        assert_eq!(refused.kind(), Kind::Vendor(CKR_DEVICE_MEMORY));
        assert!(all.take_for(OTHER, &small).is_ok());
        taken.pop();
        assert!(all.take_for(ONE, &small).is_ok());
        drop(taken);
        assert!(all.0.lock().is_empty());
    }

    #[test]
    fn bytes_count_where_objects_are_made_and_where_they_grow() {
        let all = SessionObjects::default();
        let mut taken = all.take_object(ONE, MOST_BYTES - 1024);
        assert!(all.take_for(ONE, &create(2048, false)).is_err());
        assert!(all.take_for(ONE, &create(512, false)).is_ok());
        taken.grow(800);
        assert_eq!(taken.bytes(), MOST_BYTES - 224);
        assert!(all.take_for(ONE, &create(512, false)).is_err());
        drop(taken);
        assert!(all.0.lock().is_empty());
    }

    #[test]
    fn objects_of_tokens_do_not_count() {
        let all = SessionObjects::default();
        let taken = all.take_for(ONE, &create(2 * MOST_BYTES, true));
        assert!(taken.expect("no limit").is_none());
    }
}
