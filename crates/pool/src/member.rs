//! Members of a running pool, as a writer of changes uses them.

use std::sync::Arc;

use hsmux_token::{Error, Object, ObjectId, Result, SessionObject, Token};

use crate::pool::Pool;
use crate::record::Record;
use crate::tracked_token::TrackedToken;

/// A physical token of the pool.
#[derive(Clone)]
pub struct PoolMember {
    /// Its name in the configuration: `hsm1`.
    pub name: String,
    /// The token, when it is in service; with several workers, the one that writes.
    pub token: Option<Arc<dyn Token>>,
}

impl Pool {
    /// All members whose objects this pool changes: those that are away (or parked) have `token: None`. Tokens of other
    /// hosts are none.
    pub fn members(&self) -> Vec<PoolMember> {
        let mut members: Vec<PoolMember> = Vec::new();
        let own = |record: &Arc<Record>| !record.seat.connector.remote();
        for record in self.core.records().into_iter().filter(own) {
            let connection = record.life.lock().connection.clone();
            let token = connection.map(|connection| TrackedToken::of(&self.core, connection));
            match members.iter_mut().find(|m| *m.name == *record.member) {
                Some(member) => member.token = member.token.take().or(token),
                None => members.push(PoolMember {
                    name: record.member.to_string(),
                    token,
                }),
            }
        }
        members
    }

    /// Shows that a member has objects, or has them no more. Every worker of the token sees the change, though one has
    /// carried it out.
    pub fn show_change(&self, member: &str, made: &[Object], gone: &[ObjectId]) {
        let made: Vec<Object> = made.iter().cloned().map(Object::without_secrets).collect();
        for record in self.core.records() {
            if *record.member == *member
                && let Err(error) = self.core.amend(&record, &made, gone)
            {
                tracing::warn!(seat = %record.name, %error, "a change of its objects is not shown");
            }
        }
    }

    /// The member that holds a session object, and the object's number on that member's token.
    pub fn holder_of(&self, object: &SessionObject) -> Result<(PoolMember, SessionObject)> {
        let catalogue = self.catalogue();
        let record = catalogue
            .locate(object.owner)
            .and_then(|index| self.core.record(index));
        let connection = record.and_then(|record| record.life.lock().connection.clone());
        let connection = connection.filter(|c| c.generation == object.owner);
        let connection =
            connection.ok_or_else(|| Error::lost("the session object went with its worker"))?;
        let member = PoolMember {
            name: connection.record.member.to_string(),
            token: Some(TrackedToken::of(&self.core, connection)),
        };
        Ok((
            member,
            SessionObject {
                owner: 0,
                ..*object
            },
        ))
    }
}
