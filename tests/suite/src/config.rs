use std::fmt::Write;
use std::path::PathBuf;

use crate::SOFTHSM;

/// A configuration for `hsmux.toml`; its parts are lines of their tables.
#[derive(Clone)]
pub struct PoolConfig {
    /// Further lines of `[pool]`, besides label and deadline.
    pub pool: String,
    /// Further lines of `[daemon]`, besides socket and mode, including the PIN.
    pub daemon: String,
    /// Lines of `[module]`.
    pub module: String,
    /// The members.
    pub members: Vec<MemberConfig>,
}

/// One `[[token]]`.
#[derive(Clone)]
pub struct MemberConfig {
    /// The vendor's module.
    pub module: PathBuf,
    /// The token's label, and the name of the file with its PIN.
    pub label: String,
    /// The URI of the token.
    pub uri: String,
    /// Further lines.
    pub more: String,
}

impl MemberConfig {
    /// A SoftHSM token.
    pub fn softhsm(label: &str) -> Self {
        Self {
            module: SOFTHSM.into(),
            label: label.to_owned(),
            uri: format!("pkcs11:token={label}"),
            more: String::new(),
        }
    }

    /// With further lines.
    #[must_use]
    pub fn with(mut self, more: &str) -> Self {
        writeln!(self.more, "{more}").expect("a string");
        self
    }
}

impl std::fmt::Display for PoolConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            pool,
            daemon,
            module,
            members,
        } = self;
        writeln!(f, "[pool]\nlabel = \"web\"\n{pool}")?;
        writeln!(f, "[daemon]\nsocket = \"hsmux.sock\"\nmode = \"0600\"")?;
        writeln!(f, "{daemon}")?;
        writeln!(f, "[module]\n{module}")?;
        for MemberConfig {
            module,
            label,
            uri,
            more,
        } in members
        {
            writeln!(
                f,
                "[[token]]\nmodule = \"{}\"\nuri = \"{uri}\"",
                module.display()
            )?;
            writeln!(f, "pin = {{ file = \"{label}.pin\" }}\n{more}")?;
        }
        Ok(())
    }
}
