//! What a change needs to know of the pool: who is there, and whom to tell.

use hsmux_token::{Error, Kind, Object, ObjectId, Result, SessionObject, Token};
use std::sync::Arc;

/// A physical token of the pool.
#[derive(Clone)]
pub struct Member {
    /// Its name in the configuration: `hsm1`.
    pub name: String,
    /// The token, when it is in service; with several workers, the one that writes.
    pub token: Option<Arc<dyn Token>>,
}

impl Member {
    /// The token of a member that is in service, with its serial number or what stands for it.
    pub(super) fn present(&self) -> Option<Present> {
        let token = self.token.clone()?;
        Some(Present {
            name: self.name.clone(),
            serial: token.info().identity(&self.name),
            token,
        })
    }
}

/// A member that is in service.
#[derive(Clone)]
pub(super) struct Present {
    pub name: String,
    /// What tells its token from others: [`TokenInfo::identity`](hsmux_token::TokenInfo::identity).
    pub serial: String,
    pub token: Arc<dyn Token>,
}

/// The members of a pool, as a change sees them.
pub trait Members: Send + Sync {
    /// All configured members, the ones that are away (or parked) with `token: None`.
    fn members(&self) -> Vec<Member>;

    /// A change is through on this member: `made` is there now (or has new attributes), `gone` is
    /// not. Called before the change is answered, so that its caller finds what it has made.
    fn changed(&self, member: &str, made: &[Object], gone: &[ObjectId]);

    /// Has a member connected anew, for its token holds what its module has not seen; waits until it
    /// is in service again, or cannot be.
    fn renew(&self, _member: &str) {}

    /// The member that holds a session object, and the object's number on that member's token.
    fn home(&self, object: &SessionObject) -> Result<(Member, SessionObject)> {
        Err(Error::request(
            Kind::UnknownObject,
            format!("session object {}: no member holds it", object.handle),
        ))
    }
}

/// The members in service, each token once.
pub(super) fn present(members: &dyn Members) -> Vec<Present> {
    let mut here: Vec<Present> = Vec::new();
    for present in members.members().iter().filter_map(Member::present) {
        if !here.iter().any(|other| other.serial == present.serial) {
            here.push(present);
        }
    }
    here
}
