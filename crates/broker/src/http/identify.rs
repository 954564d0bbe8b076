//! Identification of a request's client, by its connection and the token in its head.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use hsmux_state::Timestamp;

use super::limits::AdmittedRequest;
use super::{Broker, Peer};
use crate::audited_change::blocking;
use crate::auth::{ClientIdentity, Lifetime, TokenOwner};
use crate::refusal::Refusal;

/// The client, and its admitted request; a client that no policy names has none.
pub async fn identify(
    broker: &Arc<Broker>,
    headers: &HeaderMap,
    peer: &Peer,
) -> Result<(ClientIdentity, Option<AdmittedRequest>), Refusal> {
    let usage = broker.usage.load_full();
    let mut identities = peer.identities.clone();
    let token = shown(headers);
    let mut owner = token.and_then(|token| known(broker, token));
    if let (Some(token), None) = (token, &owner) {
        match identities.first() {
            None => usage.stranger(peer.ip)?,
            Some(client) => usage.unknown_token(client)?,
        }
        owner = learn(broker, token).await?;
    }
    let lifetime = owner.as_ref().map(|owner| owner.lifetime);
    identities.splice(0..0, owner.map(|owner| owner.name));
    let client = ClientIdentity::new(identities).with_token(lifetime);
    let admitted = if client.is_known() {
        Some(usage.admit(&client, client.name())?)
    } else if broker.policy.load().is_dev() {
        // A browser on this machine also comes from loopback; it marks requests that could change or open anything
        // (Fetch standard, section 3.2).
        if headers.contains_key(header::ORIGIN) {
            let message = "dev mode is not for web pages, which an Origin header tells of";
            return Err(Refusal::new(StatusCode::FORBIDDEN, message));
        }
        Some(usage.admit(&client, &format!("anonymous {:?}", peer.ip))?)
    } else {
        if token.is_none() {
            usage.stranger(peer.ip)?;
        }
        None
    };
    Ok((client, admitted))
}

/// The token in `X-Vault-Token` or `Authorization: Bearer`.
fn shown(headers: &HeaderMap) -> Option<&str> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    let own = text(HeaderName::from_static("x-vault-token"));
    let bearer = || text(header::AUTHORIZATION)?.strip_prefix("Bearer ");
    let token = own.or_else(bearer)?.trim();
    (!token.is_empty()).then_some(token)
}

/// The owner, if it is in memory.
fn known(broker: &Broker, token: &str) -> Option<TokenOwner> {
    if broker.trust.judges(token) {
        return broker.trust.known(token);
    }
    let owner = broker.tokens.owner(token)?;
    Some(TokenOwner {
        name: format!("token:{}", owner.name),
        lifetime: Lifetime {
            created: Some(owner.created.seconds()),
            expires: owner.expires.map(Timestamp::seconds),
        },
    })
}

/// The owner, where that takes work: a JWT's signature, a query to its issuer, or a read of the store, which a
/// command may have changed just now.
async fn learn(broker: &Arc<Broker>, token: &str) -> Result<Option<TokenOwner>, Refusal> {
    if broker.trust.judges(token) {
        return broker.trust.owner(token).await;
    }
    if !broker.tokens.are_current() {
        let tokens = Arc::clone(broker);
        blocking(move || tokens.tokens.refresh()).await?;
    }
    // Another request may have asked just now.
    Ok(known(broker, token))
}
