//! The process of a service: started with its link as standard input, and ended.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hsmux_config::{Config, StartedBy, User};
use hsmux_token::permissions::TrustedOwner;
use hsmux_wire::ServiceLink;
use hsmux_worker::environment_with;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::ServiceProgram;
use crate::child::end_of;

/// How long a service may take to end when its link has: what it runs ends by then.
pub const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// How long the kernel may take to end a killed process.
const KILLED_WITHIN: Duration = Duration::from_secs(1);

/// A process of a service.
pub enum ServiceChild {
    /// A child of the daemon.
    Own(Child),
    /// Something else has started it, and ends it.
    Foreign(u32),
}

impl ServiceChild {
    /// Its process id.
    pub fn id(&self) -> u32 {
        match self {
            Self::Own(child) => child.id(),
            Self::Foreign(pid) => *pid,
        }
    }

    /// Waits for its end after that of its link, and says what became of it. A child is killed if it does not end by
    /// itself.
    pub fn end(self) -> String {
        match self {
            Self::Own(child) => end(child),
            Self::Foreign(_) => "its link has ended".into(),
        }
    }
}

/// Starts it.
pub fn start(
    program: &ServiceProgram,
    name: &str,
    config: &Config,
) -> std::io::Result<(Child, ServiceLink)> {
    verify(&program.file)?;
    let (link, far) = ServiceLink::pair()?;
    let mut command = Command::new(&program.file);
    command
        .args(&program.arguments)
        .arg(name)
        .stdin(Stdio::from(far))
        .stdout(Stdio::null())
        // Ctrl+C is for the daemon, which ends its services when their work is done.
        .process_group(0);
    if let Some(user) = user_of(name, &as_written(config)) {
        become_user(&mut command, user)?;
    }
    let child = environment_with(config, of_collector(name))
        .apply(&mut command)
        .spawn()?;
    Ok((child, link))
}

/// Another program than the daemon's own has to be one that no other user can change, like a module.
fn verify(program: &Path) -> std::io::Result<()> {
    let number = |path: &Path| Some(std::fs::metadata(path).ok()?).map(|m| (m.dev(), m.ino()));
    let own = number(Path::new("/proc/self/exe"));
    if own.is_none() || own != number(program) {
        TrustedOwner::RootOrSelf.verify(program)?;
    }
    Ok(())
}

/// Credentials for the collector of spans, which no other process gets: the broker sends spans.
fn of_collector(name: &str) -> Vec<(String, String)> {
    let names = [
        "OTEL_EXPORTER_OTLP_HEADERS",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    ];
    let names = names.into_iter().filter(|_| name == super::BROKER);
    names
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
        .collect()
}

/// The configuration as the service reads it: a reload does not apply all of its section.
pub fn as_written(config: &Config) -> Config {
    hsmux_config::parse(&config.file, &config.text).unwrap_or_else(|_| config.clone())
}

/// What starts its process.
pub fn started_by(name: &str, config: &Config) -> StartedBy {
    let own = match name {
        super::BROKER => config.broker.as_ref().map(|broker| broker.started_by),
        super::GATEWAY => config.gateway.as_ref().map(|gateway| gateway.started_by),
        super::NODE => config.node.as_ref().map(|node| node.started_by),
        _ => None,
    };
    own.unwrap_or_default()
}

/// Whose process it is.
pub fn user_of<'a>(name: &str, config: &'a Config) -> Option<&'a User> {
    match name {
        super::BROKER => config.broker.as_ref()?.user.as_ref(),
        super::GATEWAY => config.gateway.as_ref()?.user.as_ref(),
        super::NODE => config.node.as_ref()?.user.as_ref(),
        _ => None,
    }
}

/// The process is this user's, with its main group and no other.
fn become_user(command: &mut Command, user: &User) -> std::io::Result<()> {
    let account = user.account();
    let account =
        account.ok_or_else(|| std::io::Error::other(format!("there is no user {user}")))?;
    let own = rustix::process::geteuid();
    if own.as_raw() == account.uid {
        return Ok(());
    }
    if !own.is_root() {
        let message = format!("user = {user}: root alone can start a process of another user");
        return Err(std::io::Error::other(message));
    }
    command.uid(account.uid).gid(account.gid);
    Ok(())
}

fn end(mut child: Child) -> String {
    await_exit(&child, Instant::now() + ENDS_WITHIN);
    // And whatever it has started. It has not been waited for, so its number is still that of its group.
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let until = Instant::now() + KILLED_WITHIN;
    let fate = end_of(&mut child, until);
    fate.unwrap_or_else(|| "it hangs in the kernel, and does not end though it was killed".into())
}

fn await_exit(child: &Child, until: Instant) {
    let Some(pid) = Pid::from_raw(child.id().cast_signed()) else {
        return;
    };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(pid), options), Ok(None)) && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_others_can_change_is_not_started() {
        verify(&std::env::current_exe().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("hsmux");
        std::fs::write(&program, "").unwrap();
        let permit = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&program, mode).unwrap();
        };
        permit(0o755);
        verify(&program).unwrap();
        permit(0o757);
        verify(&program).unwrap_err();
    }

    #[test]
    fn a_service_that_does_not_end_is_killed_after_five_seconds() {
        let mut command = Command::new("/bin/sleep");
        command.arg("1000").stdin(Stdio::null()).process_group(0);
        let child = command.spawn().unwrap();
        let begun = Instant::now();
        let fate = ServiceChild::Own(child).end();
        assert!(fate.contains("signal: 9"), "{fate}");
        let waited = begun.elapsed();
        assert!((5..60).contains(&waited.as_secs()), "{waited:?}");
    }

    #[test]
    fn what_a_service_has_started_ends_with_it() {
        let (mut near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "sleep 1000 & exit 3"])
            .stdin(Stdio::null())
            .stdout(Stdio::from(std::os::fd::OwnedFd::from(far)))
            .process_group(0);
        let child = command.spawn().unwrap();
        drop(command);
        let fate = ServiceChild::Own(child).end();
        assert_eq!(fate, "exit status: 3");
        // Its output is open as long as one of them is there.
        near.set_read_timeout(Some(ENDS_WITHIN)).unwrap();
        let read = std::io::Read::read(&mut near, &mut [0]);
        assert!(matches!(read, Ok(0)), "{read:?}");
    }
}
