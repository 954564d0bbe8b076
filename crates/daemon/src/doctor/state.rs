//! The state folder and the PINs on record there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hsmux_config::Config;
use hsmux_module::pin;

use super::{Finding, Level, shown};
use crate::admin::PinRow;

pub fn examine(config: &Config) -> Vec<Finding> {
    let state = &config.state;
    let Ok(meta) = fs::metadata(state) else {
        return vec![to_be_made(state)];
    };
    let mut findings = Vec::new();
    if meta.permissions().mode() & 0o077 != 0 {
        let problem = "other users may look into the state folder";
        let advice = format!("chmod 700 '{}'", shown(state));
        findings.push(Finding::new(Level::Warning, shown(state), problem, advice));
    }
    let draft = state.join(format!(".doctor-{}", std::process::id()));
    // Not only made but filled: a full disk still takes an empty file.
    if let Err(e) = fs::write(&draft, [0; 512]) {
        let problem = format!("the state folder cannot be written: {e}");
        let advice = "without it no token is logged in to; free space, or correct its owner";
        findings.push(Finding::new(Level::Error, shown(state), problem, advice));
    }
    let _ = fs::remove_file(&draft);
    findings.extend(pins(config));
    findings
}

/// Tests whether the folder can be made, with another name beside it.
fn to_be_made(state: &Path) -> Finding {
    let there = state.ancestors().find(|folder| folder.is_dir());
    let beside = there
        .unwrap_or(Path::new("."))
        .join(format!(".hsmux-doctor-{}", std::process::id()));
    match fs::create_dir(&beside).and_then(|()| fs::remove_dir(&beside)) {
        Ok(()) => {
            let problem = "the state folder does not exist yet";
            Finding::new(Level::Note, shown(state), problem, "hsmux serve makes it")
        }
        Err(e) => {
            let problem = format!("the state folder cannot be made: {e}");
            let advice = "correct [daemon] state, or make it for the daemon's user";
            Finding::new(Level::Error, shown(state), problem, advice)
        }
    }
}

fn pins(config: &Config) -> Vec<Finding> {
    let records = match pin::list(&config.state) {
        Ok(records) => records,
        Err(e) => {
            let advice = "run it as the daemon's user";
            let about = shown(&config.state);
            return vec![Finding::new(Level::Warning, about, e.to_string(), advice)];
        }
    };
    let mut findings = Vec::new();
    for row in records.iter().filter_map(PinRow::of).filter(|row| row.held) {
        let member = config.tokens.iter().find(|member| {
            let uri = &member.uri;
            uri.token.as_ref() == Some(&row.label) || uri.serial.as_ref() == Some(&row.serial)
        });
        let name = member.map_or(&row.label, |member| &member.name);
        let problem = format!("its PIN is held: {}", row.outcome);
        let advice = format!(
            "put the right PIN into its file, then hsmux token resume {name}; if it is right, \
             hsmux pin release {name}"
        );
        findings.push(Finding::new(Level::Error, name, problem, advice));
    }
    findings
}
