//! Rights of clients to keys. Without a rule that allows it, a request is refused.

use hsmux_config::{Action, Rule};

use crate::auth::ClientIdentity;
use crate::refusal::Refusal;

/// All rules of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    /// Everybody may do everything.
    dev: bool,
}

impl Policy {
    /// Policies from rules that allow something each; with `dev` everything is allowed.
    pub fn new(rules: Vec<Rule>, dev: bool) -> Self {
        Self { rules, dev }
    }

    /// True if everybody may do everything.
    pub fn is_dev(&self) -> bool {
        self.dev
    }

    /// True if the client may do this with the key of that name; `""` for actions without a key.
    pub fn allows(&self, client: &ClientIdentity, action: Action, key: &str) -> bool {
        let by = |rule: &Rule| {
            rule.allow.contains(&action)
                && (key.is_empty() || names(rule, key))
                && rule.clients.iter().any(|who| client.is(who))
        };
        self.dev || self.rules.iter().any(by)
    }

    /// True if the client may do anything with the key of that name: then the key is listed.
    pub fn names(&self, client: &ClientIdentity, key: &str) -> bool {
        let by = |rule: &Rule| names(rule, key) && rule.clients.iter().any(|who| client.is(who));
        self.dev || self.rules.iter().any(by)
    }

    /// The same as an answer.
    pub fn admit(&self, client: &ClientIdentity, action: Action, key: &str) -> Result<(), Refusal> {
        if self.allows(client, action, key) {
            return Ok(());
        }
        Err(Refusal::denied())
    }
}

fn names(rule: &Rule, key: &str) -> bool {
    rule.keys.iter().any(|glob| matches_key(glob, key))
}

/// Matches the name of a key. Only names of external keys have a `:`; a pattern for them must have it before its
/// first `*`.
fn matches_key(glob: &str, key: &str) -> bool {
    if let Some((kind, _)) = key.split_once(':')
        && glob
            .strip_prefix(kind)
            .is_none_or(|rest| !rest.starts_with(':'))
    {
        return false;
    }
    matches(glob.as_bytes(), key.as_bytes())
}

/// True if a text matches a pattern, in which `*` means any characters.
fn matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        if glob.get(from) == Some(&b'*') {
            star = Some((from, at));
            from += 1;
        } else if glob.get(from) == Some(&text[at]) {
            (at, from) = (at + 1, from + 1);
        } else if let Some((after, taken)) = star {
            star = Some((after, taken + 1));
            (at, from) = (taken + 1, after + 1);
        } else {
            return false;
        }
    }
    glob[from..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (glob, key, expected) in [
            ("orders-*", "orders-1", true),
            ("orders-*", "orders-", true),
            ("orders-*", "order", false),
            ("*", "anything", true),
            ("*-eu-*", "a-eu-eu-b", true),
            ("*a*b", "xaxb", true),
            ("*a*b", "xbxa", false),
            ("", "a", false),
            ("*", "label:web", false),
            ("label:*", "label:web", true),
            ("label:w*", "label:web", true),
            ("pkcs11:*", "label:web", false),
        ] {
            assert_eq!(matches_key(glob, key), expected, "{glob} {key}");
        }
    }

    #[test]
    fn nothing_is_allowed_that_no_rule_allows() {
        let rule = Rule {
            clients: vec!["token:billing".into()],
            keys: vec!["orders-*".into()],
            allow: vec![Action::Encrypt, Action::Random],
        };
        let policy = Policy::new(vec![rule], false);
        let billing = ClientIdentity::new(vec!["token:billing".into()]);
        assert!(policy.allows(&billing, Action::Encrypt, "orders-1"));
        assert!(policy.allows(&billing, Action::Random, ""));
        assert!(!policy.allows(&billing, Action::Decrypt, "orders-1"));
        assert!(!policy.allows(&billing, Action::Encrypt, "payments"));
        assert!(policy.names(&billing, "orders-1") && !policy.names(&billing, "payments"));
        let other = ClientIdentity::new(vec!["token:bill".into()]);
        assert!(!policy.allows(&other, Action::Encrypt, "orders-1"));
        assert!(!policy.names(&other, "orders-1"));
        let nobody = ClientIdentity::new(Vec::new());
        assert!(!policy.allows(&nobody, Action::Encrypt, "orders-1"));
        assert!(Policy::new(Vec::new(), true).allows(&nobody, Action::Delete, "x"));
    }
}
