//! Whose copy of a secret key is believed: decided by what is known of the members. Nobody is asked here.

use std::sync::Arc;

/// What is known where a member's copy of a secret key is to be proved.
pub(super) struct Known<C> {
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
pub(super) enum Turn<C> {
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

impl<C> Known<C> {
    /// A copy that serves decides, then the record, then the order of the configuration.
    pub fn turn(self) -> Turn<C> {
        if let Some(copy) = self.serving {
            return Turn::Compare(copy);
        }
        if self.may_come {
            return Turn::Wait;
        }
        match (self.record, self.before) {
            (Recorded::NotAsked, _) => Turn::Ask,
            (Recorded::Same, _) => Turn::Serve,
            (Recorded::Another, _) if self.trusted => Turn::ServeAndRecord,
            (Recorded::Another, _) => Turn::Refuse,
            (_, Some(before)) if !self.trusted => Turn::WaitFor(before),
            (Recorded::Nothing, None) if !self.first => Turn::ServeAndRecord,
            (Recorded::Nothing | Recorded::CannotAnswer, _) => Turn::Serve,
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
    fn first(record: Recorded) -> Known<u8> {
        Known {
            serving: None,
            may_come: false,
            before: None,
            first: true,
            trusted: false,
            record,
        }
    }

    /// The second member's, while the first one, which may hold the key, is away.
    fn second(record: Recorded) -> Known<u8> {
        Known {
            before: Some("one".into()),
            first: false,
            ..first(record)
        }
    }

    #[test]
    fn a_copy_that_serves_decides_whatever_else_is_known() {
        for record in ALL {
            for known in [first(record), second(record)] {
                let known = Known {
                    serving: Some(7),
                    may_come: true,
                    trusted: true,
                    ..known
                };
                assert_eq!(known.turn(), Turn::Compare(7));
            }
        }
    }

    #[test]
    fn a_member_that_may_come_soon_is_waited_for() {
        for record in ALL {
            let known = Known {
                may_come: true,
                trusted: true,
                ..second(record)
            };
            assert_eq!(known.turn(), Turn::Wait);
        }
    }

    #[test]
    fn the_record_comes_before_the_order() {
        for known in [first, second] {
            assert_eq!(known(Recorded::NotAsked).turn(), Turn::Ask);
            assert_eq!(known(Recorded::Same).turn(), Turn::Serve);
            assert_eq!(known(Recorded::Another).turn(), Turn::Refuse);
        }
    }

    #[test]
    fn without_a_record_the_order_decides() {
        for record in [Recorded::Nothing, Recorded::CannotAnswer] {
            assert_eq!(first(record).turn(), Turn::Serve);
            assert_eq!(second(record).turn(), Turn::WaitFor("one".into()));
        }
        // All before it have shown that they lack the key.
        let known = Known {
            before: None,
            ..second(Recorded::Nothing)
        };
        assert_eq!(known.turn(), Turn::ServeAndRecord);
    }

    #[test]
    fn an_administrator_is_believed_and_what_was_recorded_is_replaced() {
        for known in [first, second] {
            let trusted = |record| Known {
                trusted: true,
                ..known(record)
            };
            assert_eq!(trusted(Recorded::Another).turn(), Turn::ServeAndRecord);
            for record in [Recorded::Nothing, Recorded::Same, Recorded::CannotAnswer] {
                assert_eq!(trusted(record).turn(), Turn::Serve);
            }
        }
    }
}
