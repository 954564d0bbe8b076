//! What a change needs to know of the pool: who is there, and whom to tell.

pub use hsmux_pool::Member;
use hsmux_token::{Error, Kind, Object, ObjectId, Result, SessionObject, Token};
use std::sync::Arc;

/// A member that is in service.
#[derive(Clone)]
pub(super) struct PresentMember {
    pub name: String,
    /// What tells its token from others: [`TokenInfo::identity`](hsmux_token::TokenInfo::identity).
    pub serial: String,
    pub token: Arc<dyn Token>,
}

impl PresentMember {
    /// The same of a member, if it is in service.
    pub fn of(member: &Member) -> Option<Self> {
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
pub(super) fn present(members: &dyn PoolMembers) -> Vec<PresentMember> {
    let mut here: Vec<PresentMember> = Vec::new();
    for present in members.members().iter().filter_map(PresentMember::of) {
        if !here.iter().any(|other| other.serial == present.serial) {
            here.push(present);
        }
    }
    here
}
