//! How far the gateway has come to its end.

use tokio::sync::watch;

/// What a gateway does on its way to the end, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// All that it is there for.
    Serving,
    /// The same, while `/health` says that the gateway ends: balancers go elsewhere.
    Leaving,
    /// Each answer of HTTP/1.1 is the last of its connection: clients come back by the balancer.
    LastAnswers,
    /// No more connections, and no more requests on those that are open.
    Draining,
    /// No more of what has no end of its own.
    Closing,
}

/// The phase now, for all who have to know.
#[derive(Clone)]
pub struct Phases(watch::Receiver<Phase>);

impl Phases {
    /// Those of a gateway that serves, and what moves it on.
    pub fn new() -> (watch::Sender<Phase>, Self) {
        let (sender, receiver) = watch::channel(Phase::Serving);
        (sender, Self(receiver))
    }

    /// Whether it has come so far.
    pub fn is_at(&self, phase: Phase) -> bool {
        *self.0.borrow() >= phase
    }

    /// Ends once it has come so far. Whoever would move it on being gone is as good.
    pub async fn reach(&self, phase: Phase) {
        let _ = self.0.clone().wait_for(|now| *now >= phase).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn phases_follow_each_other() {
        let (sender, phases) = Phases::new();
        phases.reach(Phase::Serving).await;
        assert!(!phases.is_at(Phase::Leaving));
        sender.send(Phase::Draining).unwrap();
        for phase in [Phase::Leaving, Phase::LastAnswers, Phase::Draining] {
            phases.reach(phase).await;
            assert!(phases.is_at(phase), "{phase:?}");
        }
        assert!(!phases.is_at(Phase::Closing));
        drop(sender);
        phases.reach(Phase::Closing).await;
    }
}
