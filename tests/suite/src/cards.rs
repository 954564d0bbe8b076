use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use hsmux_vcard::reader::Readers;
use hsmux_vcard::{Card, Profile, Timing};
use tempfile::TempDir;

use crate::{Finished, Program, Run, built, write_secret};

/// OpenSC's PKCS#11 module, as Debian installs it.
pub const OPENSC: &str = "/usr/lib/x86_64-linux-gnu/opensc-pkcs11.so";

/// Virtual SmartCard-HSMs in separate readers, and programs that see only these.
/// Cards are counted from 0, in the order of OpenSC's readers.
pub struct Cards {
    /// The readers, to pull cards and to end pcscd.
    pub readers: Readers,
    folder: TempDir,
}

impl Cards {
    /// The user PIN of every initialised card.
    pub const PIN: &str = "648219";

    /// The SO-PIN of every initialised card, in the form of the tools: eight bytes in hexadecimal.
    pub const SO_PIN: &str = "3537363231383830";

    /// Cards in factory state.
    pub fn blank(count: usize) -> Self {
        Self::paced(count, &Timing::None)
    }

    /// The same with service times.
    pub fn paced(count: usize, timing: &Timing) -> Self {
        Self::of(
            (0..count).map(|number| Profile::new(&Self::serial(number)).timing(timing.clone())),
        )
    }

    /// The same with these serial numbers, which may be equal.
    pub fn with_serials(serials: &[&str]) -> Self {
        Self::of(serials.iter().map(|serial| Profile::new(serial)))
    }

    fn of(cards: impl Iterator<Item = Profile>) -> Self {
        let cards = cards.map(Card::new).collect::<Result<_, _>>();
        let readers = Readers::start(cards.expect("virtual cards"));
        Self {
            readers: readers.unwrap_or_else(|error| panic!("{error}")),
            folder: tempfile::Builder::new()
                .prefix("hsmux-cards-")
                .tempdir()
                .expect("a temporary folder"),
        }
    }

    /// The serial number of a card.
    pub fn serial(card: usize) -> String {
        format!("SUITE{card:05}")
    }

    /// The same, initialised with the PINs.
    pub fn start(count: usize) -> Self {
        let cards = Self::blank(count);
        (0..count).for_each(|card| cards.initialise(card, ""));
        cards
    }

    /// Initialises a card as `card0`, `card1`, ..., with additional options of `sc-hsm-tool`.
    pub fn initialise(&self, card: usize, options: &str) {
        self.sc_hsm_tool(card, "--initialize --label")
            .arg(format!("card{card}"))
            .args(&format!("--so-pin {} --pin {}", Self::SO_PIN, Self::PIN))
            .args(options)
            .ok();
        // The exit code is 0 even if the card refused.
        self.status(card).says("User PIN tries left  : 3");
    }

    /// Prepares these cards for the same keys, like an administrator: erases and initialises them as `card0`, `card1`,
    /// ..., with one DKEK.
    pub fn set_up(&self, cards: Range<usize>) {
        let password = "--password file:password";
        if !self.path("share.pbe").exists() {
            for (file, content) in [
                ("user.pin", Self::PIN),
                ("so.pin", Self::SO_PIN),
                ("password", "password-of-the-share"),
            ] {
                write_secret(&self.path(file), content);
            }
            self.hsmux(&format!("dkek create-share share.pbe {password}"));
        }
        for card in cards {
            let serial = Self::serial(card);
            self.hsmux(&format!(
                "init --card {serial} --label card{card} --dkek-shares 1 \
                 --so-pin file:so.pin --pin file:user.pin --yes"
            ));
        }
        self.hsmux(&format!("dkek import-share share.pbe --all {password}"));
    }

    /// Copies all keys of the first card to the others.
    pub fn clone_first(&self) -> Finished {
        let first = Self::serial(0);
        self.hsmux(&format!("clone --from {first} --all --pin file:user.pin"))
    }

    /// Runs `hsmux card`, which must succeed.
    pub fn hsmux(&self, line: &str) -> Finished {
        let hsmux = built(Program::Hsmux);
        self.run(hsmux.to_str().expect("UTF-8"))
            .args("card")
            .args(line)
            .ok()
    }

    /// A path in the rig's folder, which is the working folder of all programs.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program that sees the cards.
    pub fn run(&self, program: &str) -> Run {
        let run = Run::new(program)
            .dir(self.folder.path())
            .env("HOME", self.folder.path());
        let environment = self.readers.environment();
        environment
            .iter()
            .fold(run, |run, (name, value)| run.env(name, value))
    }

    /// `sc-hsm-tool` on a card.
    pub fn sc_hsm_tool(&self, card: usize, line: &str) -> Run {
        self.run("sc-hsm-tool")
            .args(&format!("--reader {card}"))
            .args(line)
    }

    /// The output of `sc-hsm-tool` without an action.
    pub fn status(&self, card: usize) -> Finished {
        self.sc_hsm_tool(card, "").ok()
    }

    /// `pkcs11-tool` with OpenSC's module on a card, logged in.
    pub fn pkcs11_tool(&self, card: usize, line: &str) -> Run {
        self.pkcs11_tool_without_login(card, line)
            .args(&format!("--login --pin {}", Self::PIN))
    }

    /// The same without a login. OpenSC's slot numbers increase in steps of four.
    pub fn pkcs11_tool_without_login(&self, card: usize, line: &str) -> Run {
        self.run("pkcs11-tool")
            .args(&format!("--module {OPENSC} --slot {}", 4 * card))
            .args(line)
    }

    /// Creates a key pair on a card, and writes its public key to `<label>.pub`, PEM.
    pub fn generate(&self, card: usize, kind: &str, id: &str, label: &str) {
        self.pkcs11_tool(card, &format!("--keypairgen --key-type {kind} --id {id}"))
            .args(&format!("--label {label}"))
            .ok();
        self.read_public(card, id, label);
    }

    /// Reads a public key from a card to `<name>.pub`, PEM. `pkcs11-tool` 0.23 cannot do that for curves of 192 and 384
    /// bits.
    pub fn read_public(&self, card: usize, id: &str, name: &str) {
        self.run("pkcs15-tool")
            .args(&format!(
                "--reader {card} --read-public-key {id} -o {name}.pub"
            ))
            .ok();
    }

    /// Signs with a card's key, and verifies with OpenSSL and `<public>.pub`; panics if that fails.
    pub fn sign_and_verify(&self, card: usize, id: &str, public: &str, mechanism: &str) {
        fs::write(self.path("data"), "what is signed").expect("write the data");
        let format = if mechanism.starts_with("ECDSA") {
            "--signature-format openssl"
        } else {
            ""
        };
        self.pkcs11_tool(card, &format!("--sign --id {id} -m {mechanism} {format}"))
            .args("-i data -o signature")
            .ok();
        self.run("openssl")
            .args(&format!(
                "dgst -sha256 -verify {public}.pub -signature signature data"
            ))
            .ok()
            .says("Verified OK");
    }
}
