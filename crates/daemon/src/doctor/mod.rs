//! What is wrong with a set-up, and what to do about it.

mod daemon;
mod members;
mod opensc;
mod sandboxes;
mod state;

use std::path::{Path, PathBuf};

use hsmux_config::Mistake;
use hsmux_token::TokenInfo;
use hsmux_worker::LandlockSupport;
use serde::{Deserialize, Serialize};

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something does not work.
    Error,
    /// Something works for now.
    Warning,
    /// Good to know.
    Note,
}

/// One thing that the doctor found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// About what: a member, a key, a file.
    pub about: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub advice: String,
}

/// A token that a module shows, and in which slot.
#[derive(Clone, Debug)]
pub struct FoundToken {
    /// The slot.
    pub slot: u64,
    /// The token.
    pub token: TokenInfo,
}

/// Lists the tokens of a module with some environment variables; somewhere where a module that
/// crashes takes nothing along.
pub type Probe<'a> = dyn Fn(&Path, &[(String, String)]) -> Result<Vec<FoundToken>, String> + 'a;

/// Looks at everything. No PIN is shown to any token.
pub fn examine(file: &Path, probe: &Probe<'_>) -> Vec<Finding> {
    let mut findings: Vec<_> = hsmux_config::check(file).iter().map(of_mistake).collect();
    let Ok(draft) = hsmux_config::draft(file) else {
        return findings;
    };
    let config = &draft.config;
    if draft.mistakes.is_empty() {
        findings.extend(state::examine(config));
        findings.extend(members::examine(config, probe));
        findings.extend(sandboxes::examine(config, LandlockSupport::of_kernel()));
    }
    // The daemon's finding of a member follows from an earlier finding.
    let explained = |told: &Finding| {
        let same = |known: &Finding| known.level == Level::Error && known.about == told.about;
        findings.iter().any(same)
    };
    // A daemon that runs goes on with what it read before the mistake.
    let mut told = daemon::examine(config);
    told.retain(|told| !explained(told));
    findings.extend(told);
    findings.sort_by_key(|finding| finding.level);
    findings.dedup_by(|a, b| a.about == b.about && a.problem == b.problem);
    findings
}

impl Finding {
    fn new(
        level: Level,
        about: impl Into<String>,
        problem: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            level,
            about: about.into(),
            problem: problem.into(),
            advice: advice.into(),
        }
    }
}

fn of_mistake(mistake: &Mistake) -> Finding {
    let level = if mistake.is_error() {
        Level::Error
    } else {
        Level::Warning
    };
    let about = match mistake.line {
        0 => mistake.file.display().to_string(),
        line => format!("{}:{line}", mistake.file.display()),
    };
    let advice = if mistake.file.exists() {
        "fix it, then hsmux config check".to_owned()
    } else {
        format!("hsmux config example > {}", mistake.file.display())
    };
    Finding::new(level, about, &mistake.message, advice)
}

fn shown(path: &Path) -> String {
    PathBuf::from(path).display().to_string()
}
