//! The environment of processes that load a vendor's module.

use std::env;
use std::process::Command;

/// What the daemon alone is told: by a service manager (sd_notify(3), systemd.exec(5)), and what it shows to a
/// collector of traces (OpenTelemetry protocol exporter, section 1).
const OWN: [&str; 4] = [
    "NOTIFY_SOCKET",
    "CREDENTIALS_DIRECTORY",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
];

/// A signature in software takes and frees hundreds of small blocks (OpenSSL's numbers), of each size more than glibc
/// keeps at hand for a thread, which is 7: with this a worker of SoftHSM makes 4 to 5 % more of them. Not where somebody
/// has tunables of their own.
const TUNABLES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=127");

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
        let (name, value) = TUNABLES;
        if env::var_os(name).is_none() {
            command.env(name, value);
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
        assert!(env::var_os("CARGO_PKG_NAME").is_some());
        let seen = environment.apply(&mut program).output().unwrap();
        let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
        assert!(seen.contains("VENDOR_CONF=vendor.conf\n"), "{seen}");
        for name in ["CARGO_PKG_NAME=", "NOTIFY_SOCKET="] {
            assert!(!seen.contains(name), "{seen}");
        }
    }

    #[test]
    fn tunables_of_ones_own_stay() {
        let (name, ours) = TUNABLES;
        let seen = |set: Vec<(String, String)>| {
            let mut program = Command::new("/usr/bin/printenv");
            let output = Environment::from(set).apply(program.arg(name)).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        assert_eq!(seen(Vec::new()).trim_end(), ours);
        let own = "glibc.malloc.check=3";
        assert_eq!(seen(vec![(name.into(), own.into())]).trim_end(), own);
    }
}
