//! The environment of processes that load a vendor's module.

use std::process::Command;

/// What the daemon alone is told: by a service manager (sd_notify(3), systemd.exec(5)), and what it shows to a
/// collector of traces (OpenTelemetry protocol exporter, section 1).
const OWN: [&str; 4] = [
    "NOTIFY_SOCKET",
    "CREDENTIALS_DIRECTORY",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
];

/// Changes to the environment that a process inherits: a module and what it starts see all of it,
/// and the PINs of other tokens are none of their business.
#[derive(Clone, Default, Debug)]
pub struct Environment {
    set: Vec<(String, String)>,
    withheld: Vec<String>,
}

impl Environment {
    /// `set` goes over what is inherited, less the variables named in `withheld`.
    pub fn new(set: Vec<(String, String)>, withheld: Vec<String>) -> Self {
        Self { set, withheld }
    }

    /// Makes it that of a program to be started.
    pub fn apply<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for name in OWN
            .into_iter()
            .chain(self.withheld.iter().map(String::as_str))
        {
            command.env_remove(name);
        }
        command.envs(self.set.iter().map(|(name, value)| (name, value)))
    }
}

impl From<Vec<(String, String)>> for Environment {
    fn from(set: Vec<(String, String)>) -> Self {
        Self::new(set, Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_sees_no_variable_that_is_withheld() {
        let set = vec![("VENDOR_CONF".to_owned(), "vendor.conf".to_owned())];
        // cargo has set the one, a service manager would have set the other.
        let environment = Environment::new(set, vec!["CARGO_PKG_NAME".into()]);
        let mut program = Command::new("/usr/bin/env");
        program.env("NOTIFY_SOCKET", "/run/notify");
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
        let seen = environment.apply(&mut program).output().unwrap();
        let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
        assert!(seen.contains("VENDOR_CONF=vendor.conf\n"), "{seen}");
        for name in ["CARGO_PKG_NAME=", "NOTIFY_SOCKET="] {
            assert!(!seen.contains(name), "{seen}");
        }
    }
}
