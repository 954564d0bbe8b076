use std::fs;

use hsmux_vcard::Timing;

use crate::{Cards, Member, OPENSC, Program, Rig, Run, Setup, built};

/// Virtual cards with the same keys, `ec` (P-256, id 10) and perhaps `rsa` (2048 bits, id 11), and a
/// daemon over OpenSC's module that has each of them as a member.
pub struct CardPool {
    /// The pool. Its daemon ends before the cards do.
    pub rig: Rig,
    /// The cards.
    pub cards: Cards,
}

impl CardPool {
    /// A pool whose daemon is not started yet. Each member has an OpenSC configuration that leaves it
    /// no reader but its own.
    pub fn prepare(count: usize, timing: &Timing, keys: &[(&str, &str, &str)]) -> Self {
        let cards = Cards::paced(count, timing);
        let pool = Self {
            rig: Rig::prepare(Setup::Daemon, 0),
            cards,
        };
        pool.provision(count, keys);
        pool.with_members(count)
    }

    /// Makes the cards replicas of the first, the way an administrator does.
    fn provision(&self, count: usize, keys: &[(&str, &str, &str)]) {
        for (file, content) in [
            ("user.pin", Cards::PIN),
            ("so.pin", Cards::SO_PIN),
            ("password", "password-of-the-share"),
        ] {
            fs::write(self.cards.path(file), content).expect("write a secret");
        }
        let password = "--password file:password";
        self.card(&format!("dkek create-share share.pbe {password}"));
        for card in 0..count {
            let serial = Cards::serial(card);
            self.card(&format!(
                "init --card {serial} --label card{card} --dkek-shares 1 \
                 --so-pin file:so.pin --pin file:user.pin --yes"
            ));
        }
        self.card(&format!("dkek import-share share.pbe --all {password}"));
        for (kind, id, label) in keys {
            self.cards.generate(0, kind, id, label);
        }
        let first = Cards::serial(0);
        self.card(&format!("clone --from {first} --all --pin file:user.pin"));
    }

    fn with_members(mut self, count: usize) -> Self {
        for card in 0..count {
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
            self.rig.config.members.push(Member {
                module: OPENSC.into(),
                uri: format!("pkcs11:serial={serial}"),
                more: format!("env = {{ OPENSC_CONF = '{}' }}", file.display()),
                label: serial,
            });
        }
        self
    }

    /// Starts the daemon and waits until every card serves.
    pub fn start(&mut self) {
        self.rig.write_config();
        let serve = self.seeing(self.rig.hsmux("serve"));
        self.rig.start_by(serve);
        self.rig.wait_for_members(self.rig.config.members.len());
    }

    /// A program of the rig that sees the readers, too.
    pub fn seeing(&self, run: Run) -> Run {
        let environment = self.cards.readers.environment();
        environment
            .iter()
            .fold(run, |run, (name, value)| run.env(name, value))
    }

    /// `hsmux card` on the cards, which has to work.
    pub fn card(&self, line: &str) -> crate::Finished {
        let hsmux = built(Program::Hsmux);
        self.cards
            .run(hsmux.to_str().expect("UTF-8"))
            .args("card")
            .args(line)
            .ok()
    }
}
