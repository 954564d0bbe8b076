use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{MemberConfig, Program, built};

/// The stand-in for a vendor's module (`tests/standin`): a copy with its own control file,
/// by which tests set service times and faults while it runs.
pub struct StandIn {
    module: PathBuf,
    state: PathBuf,
    whole: String,
    tokens: BTreeMap<String, String>,
}

impl StandIn {
    /// The PIN of every token.
    pub const PIN: &str = "1234";

    /// A module `<name>.so` in `folder` with tokens of these labels, which hold the same keys.
    pub fn new(folder: &Path, name: &str, labels: &[&str]) -> Self {
        let module = folder.join(format!("{name}.so"));
        fs::copy(built(Program::StandIn), &module).expect("copy the stand-in");
        let standin = Self {
            module,
            state: folder.join(format!("{name}.state")),
            whole: String::new(),
            tokens: labels
                .iter()
                .map(|label| ((*label).to_owned(), String::new()))
                .collect(),
        };
        standin.write();
        standin
    }

    /// Its tokens as members of a pool.
    pub fn members(&self) -> impl Iterator<Item = MemberConfig> {
        self.tokens.keys().map(|label| MemberConfig {
            module: self.module.clone(),
            ..MemberConfig::softhsm(label)
        })
    }

    /// Replaces the settings of one token: lines of its `[[token]]`.
    pub fn set(&mut self, label: &str, settings: &str) {
        let token = self.tokens.get_mut(label).expect("a token of this module");
        settings.clone_into(token);
        self.write();
    }

    /// The same for all tokens.
    pub fn set_all(&mut self, settings: &str) {
        self.tokens
            .values_mut()
            .for_each(|token| settings.clone_into(token));
        self.write();
    }

    /// Sets the settings of the whole module.
    pub fn set_module(&mut self, settings: &str) {
        settings.clone_into(&mut self.whole);
        self.write();
    }

    /// All PINs that a token has seen, as `CALL USER right|wrong PROCESS`.
    pub fn pins_shown(&self, label: &str) -> Vec<String> {
        let log = fs::read_to_string(self.state.join(format!("{label}.log")));
        log.unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// The names of threads that hung in a call of a token, one for each call.
    pub fn hung(&self, label: &str) -> Vec<String> {
        let calls = self.hung_calls(label).into_iter();
        calls.map(|(_, thread)| thread).collect()
    }

    /// The same with their processes.
    pub fn hung_calls(&self, label: &str) -> Vec<(u32, String)> {
        let log = fs::read_to_string(self.state.join(format!("{label}.hang")));
        let lines = log.unwrap_or_default();
        let call = |line: &str| {
            let (process, thread) = line.split_once(' ')?;
            Some((process.parse().ok()?, thread.to_owned()))
        };
        lines.lines().filter_map(call).collect()
    }

    /// A token's current PIN.
    pub fn pin(&self, label: &str) -> String {
        let changed = fs::read_to_string(self.state.join(format!("{label}.pin")));
        changed.unwrap_or_else(|_| Self::PIN.to_owned())
    }

    fn write(&self) {
        let (whole, state) = (&self.whole, self.state.display());
        let mut text = format!("{whole}\n[defaults]\nstate = \"{state}\"\n");
        for (label, settings) in &self.tokens {
            write!(text, "[[token]]\nlabel = \"{label}\"\n{settings}\n").expect("a string");
        }
        let mut name = self.module.clone().into_os_string();
        name.push(".toml");
        let new = self.module.with_extension("new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, name))
            .expect("write the control file");
    }
}
