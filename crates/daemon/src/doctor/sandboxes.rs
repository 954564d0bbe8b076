//! What the modules may do to the system.

use std::collections::BTreeMap;

use hsmux_config::Config;
use hsmux_worker::{LandlockSupport, Sandbox};

use super::{Finding, Level};

const ABOUT: &str = "sandboxes";

/// The profile of each member, and what of it this kernel lacks.
pub fn examine(config: &Config, kernel: LandlockSupport) -> Vec<Finding> {
    let mut members: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut bounded = Vec::new();
    for member in config.tokens.iter().filter(|member| member.node.is_none()) {
        let name = member.name.as_str();
        let profile = Sandbox::of(member).profile;
        let shown = match &member.user {
            None => profile.name().to_owned(),
            Some(user) => format!("{}, user {user}", profile.name()),
        };
        members.entry(shown).or_default().push(name);
        if profile.bounds_files() {
            bounded.push(name);
        }
    }
    let mut findings = Vec::new();
    if !members.is_empty() {
        let row = |(shown, names): (&String, &Vec<&str>)| format!("{} ({shown})", names.join(", "));
        let rows: Vec<_> = members.iter().map(row).collect();
        let problem = format!("each module has a profile: {}", rows.join("; "));
        let advice =
            "change it with sandbox = in the [[token]]; docs/operations.md says what each allows";
        findings.push(Finding::new(Level::Note, ABOUT, problem, advice));
    }
    findings.extend(kernel_lacks(kernel, &bounded));
    findings
}

fn kernel_lacks(kernel: LandlockSupport, bounded: &[&str]) -> Option<Finding> {
    if bounded.is_empty() {
        return None;
    }
    let names = bounded.join(", ");
    let (level, problem, advice) = match kernel {
        LandlockSupport::Full => return None,
        LandlockSupport::Partial => (
            Level::Note,
            format!(
                "this kernel has an old Landlock: modules of {names} can send signals to processes of their user"
            ),
            "Linux 6.12 or later refuses that",
        ),
        LandlockSupport::Missing => (
            Level::Warning,
            format!(
                "this kernel has no Landlock: modules of {names} can read and write all files of their user"
            ),
            "boot Linux 5.13 or later with landlock in its lsm= parameter, or accept it: sandbox = \"network\" in \
             the [[token]]",
        ),
    };
    Some(Finding::new(level, ABOUT, problem, advice))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const THREE: &str = r#"
        [pool]
        label = "web"
        [[token]]
        name = "soft1"
        module = "/usr/lib/softhsm/libsofthsm2.so"
        uri = "pkcs11:token=soft1"
        [[token]]
        name = "soft2"
        module = "/usr/lib/softhsm/libsofthsm2.so"
        uri = "pkcs11:token=soft2"
        [[token]]
        name = "card"
        module = "/usr/lib/opensc-pkcs11.so"
        uri = "pkcs11:token=card"
        [[token]]
        name = "hsm"
        module = "/opt/vendor.so"
        uri = "pkcs11:token=hsm"
        sandbox = "network"
        user = "nobody"
    "#;

    fn found(kernel: LandlockSupport, text: &str) -> Vec<(Level, String)> {
        let config = hsmux_config::parse(Path::new("/etc/hsmux/hsmux.toml"), text).unwrap();
        let findings = examine(&config, kernel).into_iter();
        findings.map(|found| (found.level, found.problem)).collect()
    }

    #[test]
    fn the_profile_of_each_member_is_shown() {
        let [(level, problem)] = &found(LandlockSupport::Full, THREE)[..] else {
            panic!("one finding");
        };
        assert_eq!(*level, Level::Note);
        let shown = "soft1, soft2 (file); hsm (network, user nobody); card (pcsc)";
        assert!(problem.ends_with(shown), "{problem}");
    }

    #[test]
    fn a_kernel_without_landlock_is_told_with_the_members_that_need_it() {
        let [_, (level, problem)] = &found(LandlockSupport::Missing, THREE)[..] else {
            panic!("two findings");
        };
        assert_eq!(*level, Level::Warning);
        assert!(
            problem.contains("modules of soft1, soft2, card can"),
            "{problem}"
        );
        let [_, (level, problem)] = &found(LandlockSupport::Partial, THREE)[..] else {
            panic!("two findings");
        };
        assert_eq!(*level, Level::Note);
        assert!(problem.contains("soft1, soft2, card"), "{problem}");
        let accepted = THREE.replace("uri =", "sandbox = \"none\"\nuri =");
        let accepted = accepted.replace("sandbox = \"network\"", "");
        assert_eq!(found(LandlockSupport::Missing, &accepted).len(), 1);
    }
}
