use std::fs;

use hsmux_vcard::{Order, Timing};

use crate::{Cards, MemberConfig, OPENSC, Program, Rig, Run, Setup, built};

/// Virtual cards with the same keys, `ec` (P-256, id 10) and optionally `rsa` (2048 bits, id 11),
/// and a daemon over OpenSC's module with each card as a member.
pub struct CardPool {
    /// The pool. Its daemon ends before the cards.
    pub rig: Rig,
    /// The cards.
    pub cards: Cards,
}

impl CardPool {
    /// Prepares a pool without starting its daemon. OpenSC's configuration of each member permits only its own reader.
    pub fn prepare(count: usize, timing: &Timing, keys: &[(&str, &str, &str)]) -> Self {
        Self::with_spare(count, 0, timing, keys)
    }

    /// The same with `spare` additional blank cards in no reader, which no worker ignores.
    pub fn with_spare(
        count: usize,
        spare: usize,
        timing: &Timing,
        keys: &[(&str, &str, &str)],
    ) -> Self {
        let cards = Cards::paced(count + spare, timing);
        for card in count..count + spare {
            cards.readers.obey(card, Order::Unplug);
        }
        cards.set_up(0..count);
        for (kind, id, label) in keys {
            cards.generate(0, kind, id, label);
        }
        cards.clone_first();
        let mut pool = Self {
            rig: Rig::prepare(Setup::Daemon, 0),
            cards,
        };
        (0..count).for_each(|card| pool.add_member(card, count));
        pool
    }

    /// `hsmux card` with a running daemon, which parks the members of the cards.
    pub fn card_beside(&self, line: &str) -> Run {
        self.cards
            .run(built(Program::Hsmux).to_str().unwrap())
            .args("card")
            .args(line)
            .env("HSMUX_CONFIG", self.rig.path("hsmux.toml"))
    }

    /// Adds a member to [`Rig::config`], whose OpenSC ignores the readers of the others of the first `count`.
    pub fn add_member(&mut self, card: usize, count: usize) {
        let serial = Cards::serial(card);
        let others = (0..count).filter(|other| *other != card);
        let others: Vec<_> = others
            .map(|other| format!("{:?}", self.cards.readers.name(other)))
            .collect();
        let file = self.rig.path(&format!("{serial}.conf"));
        let ignored = match &*others.join(", ") {
            "" => String::new(),
            names => format!("ignored_readers = {names};"),
        };
        fs::write(&file, format!("app default {{ {ignored} }}\n")).expect("write it");
        self.rig.write_pin(&serial, Cards::PIN);
        self.rig.config.members.push(MemberConfig {
            module: OPENSC.into(),
            uri: format!("pkcs11:serial={serial}"),
            more: format!("env = {{ OPENSC_CONF = '{}' }}", file.display()),
            label: serial,
        });
    }

    /// Starts the daemon and waits until every card serves.
    pub fn start(&mut self) {
        self.start_daemon();
        self.rig.wait_for_members(self.rig.config.members.len());
    }

    /// Starts the daemon and waits until it answers.
    pub fn start_daemon(&mut self) {
        self.rig.write_config();
        let serve = self.seeing(self.rig.hsmux("serve"));
        self.rig.start_by(serve);
    }

    /// Lets a program of the rig also use the readers.
    pub fn seeing(&self, run: Run) -> Run {
        let environment = self.cards.readers.environment();
        environment
            .iter()
            .fold(run, |run, (name, value)| run.env(name, value))
    }

    /// Runs `hsmux card` on the cards, which must succeed.
    pub fn card(&self, line: &str) -> crate::Finished {
        self.cards.hsmux(line)
    }
}
