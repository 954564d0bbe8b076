//! Phases of the gateway's shutdown.

use tokio::sync::watch;

/// A phase. They follow each other in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Normal service.
    Serving,
    /// Normal service, but `/health` reports the end: balancers choose other hosts.
    Leaving,
    /// Each answer of HTTP/1.1 is the last of its connection: clients reconnect by the balancer.
    LastAnswers,
    /// No new connections, and no new requests on open ones.
    Draining,
    /// Relayed connections end, which have no end of their own.
    Closing,
}

/// Tells the current phase.
#[derive(Clone)]
pub struct Phases(watch::Receiver<Phase>);

impl Phases {
    /// The phases of a new gateway, and the sender that advances them.
    pub fn new() -> (watch::Sender<Phase>, Self) {
        let (sender, receiver) = watch::channel(Phase::Serving);
        (sender, Self(receiver))
    }

    /// Whether this phase has begun.
    pub fn is_at(&self, phase: Phase) -> bool {
        *self.0.borrow() >= phase
    }

    /// Returns once this phase has begun, or the sender is gone.
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
