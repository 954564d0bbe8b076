//! Settings of OpenSC that a pool of cards needs.

use hsmux_config::{Config, Member};
use hsmux_token::TokenFlags;

use super::{Finding, FoundToken, Level};

/// As many cards OpenSC shows unless `max_virtual_slots` says otherwise: 16 slots, four for each reader.
const SHOWN: usize = 4;

/// Each worker is to see its own card, and no other: one of several members needs a configuration of
/// its own for that.
pub fn examine(config: &Config, member: &Member, found: &[FoundToken]) -> Option<Finding> {
    let several = config.tokens.iter().filter(|m| is_opensc(m)).count() > 1;
    if !several || !is_opensc(member) {
        return None;
    }
    let is_card = |found: &&FoundToken| found.token.flags.contains(TokenFlags::TOKEN_INITIALIZED);
    let cards: Vec<_> = found.iter().filter(is_card).collect();
    let own = |found: &FoundToken| member.uri.matches_token(&found.token, Some(found.slot));
    let problem = match (cards.iter().any(|found| own(found)), cards.len()) {
        (true, 0 | 1) => return None,
        (true, seen) => format!(
            "its worker looks into {seen} cards, which takes time at each start and logs the others out"
        ),
        (false, SHOWN..) => {
            format!("OpenSC shows {SHOWN} cards, and its own is not among them")
        }
        (false, _) => return None,
    };
    let advice = "give it an opensc.conf that ignores the other readers: \
                  env = { OPENSC_CONF = ... }, see docs/cards-in-a-pool.md";
    Some(Finding::new(Level::Warning, &member.name, problem, advice))
}

fn is_opensc(member: &Member) -> bool {
    let file = member.module.file_name().unwrap_or_default();
    file.to_string_lossy().starts_with("opensc-pkcs11")
}
