//! Common options of all commands: the configuration, the daemon, the output format.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use hsmux_config::{Config, Draft, Mistake};
use hsmux_daemon::StateLock;
use hsmux_daemon::admin::{AdminClient, AdminRequest, AdminResponse, LocalAction, Recorder, Stage};
use hsmux_token::Kind;

use crate::exit::Exit;

/// Options of every command.
#[derive(Args, Clone, Debug)]
pub struct Context {
    /// The configuration file [default: $HSMUX_CONFIG, then /etc/hsmux/hsmux.toml, then the user's own]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Print JSON for programs in place of text for people
    #[arg(long, global = true)]
    pub json: bool,
}

impl Context {
    /// The configuration file.
    pub fn file(&self) -> PathBuf {
        self.config
            .clone()
            .unwrap_or_else(hsmux_config::default_path)
    }

    /// Reads the configuration; the error has all mistakes.
    pub fn load(&self) -> anyhow::Result<Config> {
        hsmux_config::load(&self.file()).map_err(|mistakes| wrong(&mistakes))
    }

    /// The same for the daemon: other users can change none of the files that decide who is trusted.
    pub fn load_to_serve(&self) -> anyhow::Result<Config> {
        let config = self.load()?;
        match hsmux_config::untrusted_files(&config) {
            mistakes if mistakes.is_empty() => Ok(config),
            mistakes => Err(wrong(&mistakes)),
        }
    }

    /// Reads the configuration as far as possible, for commands that a running daemon serves:
    /// the daemon keeps its last valid configuration.
    pub fn draft(&self) -> anyhow::Result<Draft> {
        hsmux_config::draft(&self.file()).map_err(|mistake| wrong(&[mistake]))
    }

    /// Whether a daemon runs. If that is unknown it is an error, because the daemon may be using the cards.
    pub fn is_served(&self) -> anyhow::Result<bool> {
        let draft = self.draft()?;
        // Mistakes may have changed the state folder.
        let held = StateLock::is_held(&draft.config.state);
        if matches!(held, Ok(true)) {
            return Ok(true);
        }
        if draft.mistakes.is_empty() {
            return held.map_err(anyhow::Error::from);
        }
        let unknown = "whether a daemon runs cannot be said before the configuration is correct";
        Err(wrong(&draft.mistakes).context(unknown))
    }

    /// The state folder of a command that needs no configuration: the configured one, if there is a configuration.
    /// An invalid configuration is an error, because the folder may have records of PINs.
    pub fn state(&self) -> anyhow::Result<PathBuf> {
        if self.file().exists() {
            return Ok(self.load()?.state);
        }
        let missing = "no folder for the record of PINs: set HOME, or write a configuration";
        hsmux_config::default_state().ok_or_else(|| Exit::Usage.because(missing))
    }

    /// Connects to the daemon's administration.
    pub fn admin(&self) -> anyhow::Result<AdminClient> {
        let draft = self.draft()?;
        AdminClient::of(&draft.config).map_err(|error| {
            // The socket may be wrong because of a mistake.
            if !draft.mistakes.is_empty() {
                return wrong(&draft.mistakes).context(error);
            }
            let hint = if error.kind() == Kind::AccessDenied {
                let file = self.file();
                let file = std::path::absolute(&file).unwrap_or(file);
                format!(
                    "\nroot and the daemon's own user may administer it: sudo hsmux --config {} ...",
                    file.display()
                )
            } else {
                String::new()
            };
            Exit::NoDaemon.because(format!("{error}{hint}"))
        })
    }

    /// The recorder of this command's actions in the audit trail.
    fn recorder(&self) -> anyhow::Result<Recorder> {
        if self.is_served()? {
            return Ok(Recorder::daemon(self.admin()?));
        }
        Ok(Recorder::own(&self.load()?)?)
    }

    /// Runs an action with a line in the audit trail before and after it. Without a configuration there is no trail.
    pub fn recorded<T>(
        &self,
        action: &LocalAction,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.recorded_as(action, work, |_| Stage::Done)
    }

    /// The same for an action that may succeed partially; `stage` returns its outcome.
    pub fn recorded_as<T>(
        &self,
        action: &LocalAction,
        work: impl FnOnce() -> anyhow::Result<T>,
        stage: impl FnOnce(&T) -> Stage,
    ) -> anyhow::Result<T> {
        if !self.file().exists() {
            return work();
        }
        self.recorder()?
            .tell(action, Stage::Begun)
            .context("nothing was done, for it is not on the audit trail")?;
        let result = work();
        let stage = match &result {
            Ok(value) => stage(value),
            Err(error) => Stage::Failed(format!("{error:#}")),
        };
        // Checked again, because a daemon may have started or ended meanwhile.
        let recorder = self.recorder();
        let told = recorder.and_then(|recorder| Ok(recorder.tell(action, stage)?));
        let Err(untold) = told else {
            return result;
        };
        let untold = format!("the audit trail has no line of how it ended: {untold:#}");
        match result {
            Ok(_) => Err(anyhow::anyhow!("it is done, but {untold}")),
            Err(error) => Err(error.context(untold)),
        }
    }

    /// Sends one request to the daemon.
    pub fn ask(&self, request: &AdminRequest) -> anyhow::Result<AdminResponse> {
        Ok(self.admin()?.ask(request)?)
    }
}

/// Combines all mistakes of the configuration in one error.
fn wrong(mistakes: &[Mistake]) -> anyhow::Error {
    let mut lines: Vec<_> = mistakes.iter().map(Mistake::to_string).collect();
    lines.push("hsmux config example prints a file to start from".into());
    Exit::Usage.because(lines.join("\n"))
}
