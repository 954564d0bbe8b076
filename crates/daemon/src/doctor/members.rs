//! The modules and their tokens, looked at without logging in.

use std::collections::HashMap;

use hsmux_config::{Config, Isolation, Member};
use hsmux_token::{TokenFlags, TokenInfo};

use super::{Finding, FoundToken, Level, Probe, opensc, shown};
use crate::members::worker;

pub fn examine(config: &Config, probe: &Probe<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let has_modules = config.tokens.iter().any(|member| member.node.is_none());
    if let Ok(worker) = worker(config)
        && has_modules
        && !worker.is_file()
    {
        let problem = "the workers' executable is not there";
        findings.push(Finding::new(
            Level::Error,
            shown(&worker),
            problem,
            "set [daemon] worker",
        ));
    }
    findings.extend(
        config
            .tokens
            .iter()
            .filter_map(|m| asks_for_thread(config, m)),
    );
    let mut probed = HashMap::new();
    // Of a module that is not there, config check has said it.
    for member in config.tokens.iter().filter(|m| m.module.is_file()) {
        let found = probed
            .entry((&member.module, &member.env))
            .or_insert_with(|| probe(&member.module, &member.env));
        match found {
            Ok(found) => {
                findings.extend(token(member, found));
                findings.extend(opensc::examine(config, member, found));
            }
            Err(why) => {
                let module = member.module.display();
                let said = why.strip_prefix(&format!("{module}: ")).unwrap_or(why);
                let said = said.strip_prefix("cannot be loaded: ").unwrap_or(said);
                let problem = format!("{module} cannot be loaded: {said}");
                let advice = "install the vendor's module, or correct module =";
                findings.push(Finding::new(Level::Error, &member.name, problem, advice));
            }
        }
    }
    findings
}

/// The daemon loads no module itself.
fn asks_for_thread(config: &Config, member: &Member) -> Option<Finding> {
    if config.module.embedded || member.isolation != Isolation::Thread {
        return None;
    }
    let problem = "isolation = \"thread\" is for [module] mode = \"embedded\": the daemon uses worker processes";
    let advice = "remove isolation";
    Some(Finding::new(Level::Note, &member.name, problem, advice))
}

fn token(member: &Member, found: &[FoundToken]) -> Vec<Finding> {
    let name = &member.name;
    let mut fitting = found
        .iter()
        .filter(|found| member.uri.matches_token(&found.token, Some(found.slot)));
    let Some(token) = fitting.next().map(|found| &found.token) else {
        let labels: Vec<_> = found
            .iter()
            .filter(|found| found.token.flags.contains(TokenFlags::TOKEN_INITIALIZED))
            .map(|found| found.token.label.as_str())
            .collect();
        let problem = format!("no token of the module matches {}", member.uri);
        let advice = if labels.is_empty() {
            let module = member.module.display();
            format!(
                "plug it in, or make one: hsmux token init --module '{module}' --label LABEL --pin file:FILE \
                 --so-pin file:FILE"
            )
        } else {
            let labels = labels.join(", ");
            format!("plug it in, or correct uri =; there are {labels}")
        };
        return vec![Finding::new(Level::Error, name, problem, advice)];
    };
    let mut findings = Vec::new();
    if fitting.next().is_some() {
        let problem = format!("several tokens match {}", member.uri);
        findings.push(Finding::new(
            Level::Error,
            name,
            problem,
            "add ;serial= to uri =",
        ));
    }
    findings.extend(flags(member, token.flags));
    findings.extend(library(name, token));
    findings
}

/// What CK_TOKEN_INFO's flags mean for an administrator (PKCS#11 3.0, section 3.2). NAME is the member's.
const FLAGS: &[(TokenFlags, Level, &str, &str)] = &[
    (
        TokenFlags::USER_PIN_LOCKED,
        Level::Error,
        "its PIN is locked",
        "the security officer sets a new one",
    ),
    (
        TokenFlags::USER_PIN_FINAL_TRY,
        Level::Error,
        "one more wrong PIN locks it; nothing logs in by itself",
        "log in once with the vendor's tool and the right PIN",
    ),
    (
        TokenFlags::USER_PIN_COUNT_LOW,
        Level::Warning,
        "a wrong PIN was tried on it since the last login: its PIN counter is low",
        "a login with the right PIN resets it; if it was none of yours, find out who did",
    ),
    (
        TokenFlags::USER_PIN_TO_BE_CHANGED,
        Level::Warning,
        "its PIN is still the one of its initialisation",
        "hsmux pin rotate NAME",
    ),
    (
        TokenFlags::ERROR_STATE,
        Level::Error,
        "it failed its own self-test",
        "see the vendor's manual",
    ),
];

fn flags(member: &Member, flags: TokenFlags) -> Vec<Finding> {
    let name = &member.name;
    let mut findings: Vec<_> = FLAGS
        .iter()
        .filter(|(flag, ..)| flags.contains(*flag))
        .map(|(_, level, problem, advice)| {
            Finding::new(*level, name, *problem, advice.replace("NAME", name))
        })
        .collect();
    if !flags.contains(TokenFlags::USER_PIN_INITIALIZED) {
        let advice = format!(
            "the security officer sets one: pkcs11-tool --module '{}' --token-label LABEL --login --login-type so \
             --init-pin",
            member.module.display()
        );
        findings.push(Finding::new(
            Level::Error,
            name,
            "it has no user PIN yet",
            advice,
        ));
    }
    findings
}

/// Versions with known trouble.
fn library(name: &str, token: &TokenInfo) -> Option<Finding> {
    let (major, minor) = token.library_version;
    if token.library.contains("SoftHSM") && (major, minor) < (2, 4) {
        let problem = format!(
            "SoftHSM {major}.{minor} falls to a fraction of its speed when another process adds or \
             removes a key, until it is started anew"
        );
        return Some(Finding::new(
            Level::Warning,
            name,
            problem,
            "upgrade to 2.6",
        ));
    }
    None
}
