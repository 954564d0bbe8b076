//! The members of the pool in the view of a change.

pub use hsmux_pool::PoolMember;
use hsmux_token::{Error, Kind, Object, ObjectId, Result, SessionObject, Token};
use std::sync::Arc;

/// A member that is in service.
#[derive(Clone)]
pub(super) struct PresentMember {
    pub name: String,
    /// The identity of its token: [`TokenInfo::identity`](hsmux_token::TokenInfo::identity).
    pub serial: String,
    pub token: Arc<dyn Token>,
}

impl PresentMember {
    /// The same of a member, if it is in service.
    pub fn of(member: &PoolMember) -> Option<Self> {
        let token = member.token.clone()?;
        Some(Self {
            name: member.name.clone(),
            serial: token.info().identity(&member.name),
            token,
        })
    }
}

/// The members of a pool, as a change sees them.
pub trait PoolMembers: Send + Sync {
    /// All configured members, the ones that are away (or parked) with `token: None`.
    fn members(&self) -> Vec<PoolMember>;

    /// A change is done on this member: `made` exists now (or has new attributes), `gone` does not. Called before the
    /// change is answered, so that its caller finds the new objects.
    fn changed(&self, member: &str, made: &[Object], gone: &[ObjectId]);

    /// Reconnects a member whose token holds objects that its module has not seen; waits until it is in service
    /// again, or cannot be.
    fn renew(&self, _member: &str) {}

    /// The member that holds a session object, and the object's number on that member's token.
    fn home(&self, object: &SessionObject) -> Result<(PoolMember, SessionObject)> {
        Err(Error::request(
            Kind::UnknownObject,
            format!("session object {}: no member holds it", object.handle),
        ))
    }
}

/// The members in service, each token once.
pub(super) fn present(members: &dyn PoolMembers) -> Vec<PresentMember> {
    let mut here: Vec<PresentMember> = Vec::new();
    for present in members.members().iter().filter_map(PresentMember::of) {
        if !here.iter().any(|other| other.serial == present.serial) {
            here.push(present);
        }
    }
    here
}
