//! What only the file system knows: modules, PIN files, folders and users that are not there.

use std::collections::HashSet;
use std::path::Path;

use super::users::group_id;
use super::{Config, Listener, Member, Mistake, PinSource, Severity, Socket, load};

/// Finds every mistake of a configuration file, those included that only this machine can tell.
/// Without one that [is an error](Mistake::is_error) the daemon can start.
pub fn check(file: &Path) -> Vec<Mistake> {
    match load(file) {
        Err(mistakes) => mistakes,
        Ok(config) => look(&config),
    }
}

fn look(config: &Config) -> Vec<Mistake> {
    let mut found = Findings {
        file: &config.file,
        mistakes: Vec::new(),
    };
    for member in &config.tokens {
        found.member(member);
    }
    for listener in &config.listeners {
        found.listener(listener);
    }
    found.socket(&config.admin.socket);
    found.folder("state folder", &config.state);
    let mut folders = HashSet::new();
    if config.tokens.len() == 1 {
        found.warn(
            0,
            "one [[token]]: a pool of one has no second replica of any key",
        );
    }
    for socket in config
        .listeners
        .iter()
        .map(|l| &l.socket)
        .chain([&config.admin.socket])
    {
        if let Some(folder) = socket
            .path
            .parent()
            .filter(|folder| folders.insert(*folder))
        {
            found.folder("folder of the socket", folder);
        }
    }
    found.mistakes
}

struct Findings<'a> {
    file: &'a Path,
    mistakes: Vec<Mistake>,
}

impl Findings<'_> {
    fn add(&mut self, line: usize, severity: Severity, message: String) {
        self.mistakes.push(Mistake {
            file: self.file.to_owned(),
            line,
            severity,
            message,
        });
    }

    fn error(&mut self, line: usize, message: impl Into<String>) {
        self.add(line, Severity::Error, message.into());
    }

    fn warn(&mut self, line: usize, message: impl Into<String>) {
        self.add(line, Severity::Warning, message.into());
    }

    fn member(&mut self, member: &Member) {
        let module = member.module.display();
        match std::fs::metadata(&member.module) {
            Err(e) => self.error(member.line, format!("module {module}: {e}")),
            Ok(meta) if !meta.is_file() => {
                self.error(member.line, format!("module {module} is not a file"));
            }
            Ok(_) => {}
        }
        if let Some(pin) = &member.pin {
            self.pin(member.line, pin);
        } else {
            let name = &member.name;
            let message = format!("{name} has no pin: its private keys cannot be used");
            self.warn(member.line, message);
        }
    }

    fn listener(&mut self, listener: &Listener) {
        self.socket(&listener.socket);
        if let Some(pin) = &listener.pin {
            self.pin(0, pin);
        }
        let socket = listener.socket.path.display();
        if listener.socket.mode & 0o002 != 0 && listener.socket.allow_users.is_empty() {
            let message = format!("{socket}: every user of this machine may connect");
            self.warn(0, message);
        }
    }

    fn socket(&mut self, socket: &Socket) {
        let place = socket.path.display();
        for user in &socket.allow_users {
            if user.id().is_none() {
                self.error(0, format!("{place}: allow_users: there is no user {user}"));
            }
        }
        if let Some(group) = &socket.group
            && group_id(group).is_none()
        {
            self.error(0, format!("{place}: group: there is no group {group}"));
        }
        // sun_path, unix(7).
        if socket.path.as_os_str().len() > 107 {
            self.error(
                0,
                format!("{place}: longer than the 107 bytes of a socket's path"),
            );
        }
    }

    fn pin(&mut self, line: usize, pin: &PinSource) {
        match pin.read() {
            Err(e) if matches!(pin, PinSource::File(_)) => self.error(line, e.to_string()),
            // The environment and the credentials of the daemon are not those of this command.
            Err(e) => self.warn(line, e.to_string()),
            Ok(_) if pin.readable_by_others() => {
                let message = format!("{pin}: every user can read it; chmod 600");
                self.warn(line, message);
            }
            Ok(_) => {}
        }
    }

    /// The daemon makes the last folder of a path, and no more.
    fn folder(&mut self, what: &str, folder: &Path) {
        let parent = folder
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        if folder.exists() && !folder.is_dir() {
            self.error(0, format!("{what} {} is not a folder", folder.display()));
        } else if !folder.exists() && !parent.is_dir() {
            self.error(0, format!("{what}: {} does not exist", parent.display()));
        }
    }
}
