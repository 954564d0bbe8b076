//! The members of the pool, as the coordinator sees them.

use std::sync::Arc;

use hsmux_token::{Object, ObjectId, Token};

use super::token::SimulatedToken;
use super::token_model::TokenModel;
use super::world::ChangeWorld;
use crate::{PoolMember, PoolMembers};

pub(super) struct SimulatedPool(pub Arc<ChangeWorld>);

impl SimulatedPool {
    /// A member by its present connection, in service or not yet.
    pub fn member(&self, token: usize) -> PoolMember {
        let state = self.0.state();
        let model = &state.tokens[token];
        let connection = SimulatedToken {
            world: Arc::clone(&self.0),
            token,
            connection: model.connection,
        };
        PoolMember {
            name: model.member.clone(),
            token: Some(Arc::new(connection) as Arc<dyn Token>),
        }
    }
}

impl PoolMembers for SimulatedPool {
    fn members(&self) -> Vec<PoolMember> {
        let serves: Vec<bool> = self
            .0
            .state()
            .tokens
            .iter()
            .map(TokenModel::serves)
            .collect();
        let all = serves.into_iter().enumerate().map(|(token, serves)| {
            let mut member = self.member(token);
            if !serves {
                member.token = None;
            }
            member
        });
        all.collect()
    }

    fn changed(&self, member: &str, made: &[Object], gone: &[ObjectId]) {
        let mut state = self.0.state();
        let token = state.tokens.iter_mut().find(|token| token.member == member);
        let shown = &mut token.expect("it is a member").shown;
        shown.retain(|id| !gone.contains(id));
        shown.extend(made.iter().map(|object| object.id));
    }
}
