//! Decides which copy of a secret key is trusted, by facts about the members. No token is asked here.

use std::sync::Arc;

/// Facts about a copy that is to be proved, and about the members.
pub(super) struct Evidence<C> {
    /// A copy that serves by another connection.
    pub serving: Option<C>,
    /// A member before this one may show its copy soon.
    pub may_come: bool,
    /// A member before this one that may hold the key and does not serve it.
    pub before: Option<Arc<str>>,
    /// Nobody comes before this one.
    pub first: bool,
    /// The administrator has said `trusted = true`.
    pub trusted: bool,
    /// What the key has answered when it was compared.
    pub record: Recorded,
}

/// What the record of answers says of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Recorded {
    /// Nothing is recorded of the key.
    Nothing,
    /// There is a question that the copy has not been asked.
    NotAsked,
    /// It answers as the key did.
    Same,
    /// It is another key.
    Another,
    /// The token does not offer the work that was recorded.
    CannotAnswer,
}

/// The next step of a proof.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum TrustStep<C> {
    /// Compare it with this copy.
    Compare(C),
    /// Wait until a member comes or goes.
    Wait,
    /// Ask it what is recorded.
    Ask,
    /// It serves.
    Serve,
    /// It serves, and what it answers now is recorded.
    ServeAndRecord,
    /// It is not the key that was compared before.
    Refuse,
    /// It does not serve before this member has come.
    WaitFor(Arc<str>),
}

impl<C> Evidence<C> {
    /// A copy that serves decides, then the record, then the order of the configuration.
    pub fn next_step(self) -> TrustStep<C> {
        if let Some(copy) = self.serving {
            return TrustStep::Compare(copy);
        }
        if self.may_come {
            return TrustStep::Wait;
        }
        match (self.record, self.before) {
            (Recorded::NotAsked, _) => TrustStep::Ask,
            (Recorded::Same, _) => TrustStep::Serve,
            (Recorded::Another, _) if self.trusted => TrustStep::ServeAndRecord,
            (Recorded::Another, _) => TrustStep::Refuse,
            (_, Some(before)) if !self.trusted => TrustStep::WaitFor(before),
            (Recorded::Nothing, None) if !self.first => TrustStep::ServeAndRecord,
            (Recorded::Nothing | Recorded::CannotAnswer, _) => TrustStep::Serve,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Recorded; 5] = [
        Recorded::Nothing,
        Recorded::NotAsked,
        Recorded::Same,
        Recorded::Another,
        Recorded::CannotAnswer,
    ];

    /// The first member's copy, while none serves.
    fn first(record: Recorded) -> Evidence<u8> {
        Evidence {
            serving: None,
            may_come: false,
            before: None,
            first: true,
            trusted: false,
            record,
        }
    }

    /// The second member's, while the first one, which may hold the key, is away.
    fn second(record: Recorded) -> Evidence<u8> {
        Evidence {
            before: Some("one".into()),
            first: false,
            ..first(record)
        }
    }

    #[test]
    fn a_copy_that_serves_decides_whatever_else_is_known() {
        for record in ALL {
            for evidence in [first(record), second(record)] {
                let evidence = Evidence {
                    serving: Some(7),
                    may_come: true,
                    trusted: true,
                    ..evidence
                };
                assert_eq!(evidence.next_step(), TrustStep::Compare(7));
            }
        }
    }

    #[test]
    fn a_member_that_may_come_soon_is_waited_for() {
        for record in ALL {
            let evidence = Evidence {
                may_come: true,
                trusted: true,
                ..second(record)
            };
            assert_eq!(evidence.next_step(), TrustStep::Wait);
        }
    }

    #[test]
    fn the_record_comes_before_the_order() {
        for evidence in [first, second] {
            assert_eq!(evidence(Recorded::NotAsked).next_step(), TrustStep::Ask);
            assert_eq!(evidence(Recorded::Same).next_step(), TrustStep::Serve);
            assert_eq!(evidence(Recorded::Another).next_step(), TrustStep::Refuse);
        }
    }

    #[test]
    fn without_a_record_the_order_decides() {
        for record in [Recorded::Nothing, Recorded::CannotAnswer] {
            assert_eq!(first(record).next_step(), TrustStep::Serve);
            assert_eq!(second(record).next_step(), TrustStep::WaitFor("one".into()));
        }
        // All before it have shown that they lack the key.
        let evidence = Evidence {
            before: None,
            ..second(Recorded::Nothing)
        };
        assert_eq!(evidence.next_step(), TrustStep::ServeAndRecord);
    }

    #[test]
    fn an_administrator_is_believed_and_what_was_recorded_is_replaced() {
        for evidence in [first, second] {
            let trusted = |record| Evidence {
                trusted: true,
                ..evidence(record)
            };
            assert_eq!(
                trusted(Recorded::Another).next_step(),
                TrustStep::ServeAndRecord
            );
            for record in [Recorded::Nothing, Recorded::Same, Recorded::CannotAnswer] {
                assert_eq!(trusted(record).next_step(), TrustStep::Serve);
            }
        }
    }
}
