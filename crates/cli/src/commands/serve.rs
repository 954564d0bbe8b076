//! `hsmux serve`.

use std::io;
use std::path::Path;

use clap::{Args, ValueEnum};
use hsmux_daemon::{Daemon, ServiceProgram};
use hsmux_worker::keep_secrets;
use tracing_subscriber::EnvFilter;

use crate::context::Context;
use crate::exit::Exit;

/// Options of `hsmux serve`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux serve\n  \
    HSMUX_CONFIG=./hsmux.toml hsmux serve --log-format json\n\n\
    SIGHUP reloads the configuration; SIGTERM and Ctrl+C end the daemon.")]
pub struct Serve {
    /// The format of the log, which goes to standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,

    /// The log level: error, warn, info, debug, trace, or by component (info,hsmux_pool=debug)
    #[arg(long, env = "HSMUX_LOG", default_value = "info", value_name = "LEVEL")]
    log: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Serve {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        // It reads PINs.
        keep_secrets();
        self.start_log()?;
        hsmux_worker::allow_locked_memory();
        // Checked here, so that a mistake gets its own exit code.
        context.load_to_serve()?;
        let file = std::path::absolute(context.file())?;
        let daemon = self.start(&file).map_err(advised)?;
        let ended = daemon.run();
        drop(daemon);
        ended?;
        hsmux_daemon::leave()
    }

    fn start(&self, file: &Path) -> anyhow::Result<Daemon> {
        let daemon = Daemon::start(file)?;
        let running = daemon.running();
        running.services.start(running, &self.program(file)?)?;
        Ok(daemon)
    }

    /// This program, with the arguments for a service.
    fn program(&self, file: &Path) -> anyhow::Result<ServiceProgram> {
        let format = self.log_format.to_possible_value();
        let format = format.map_or_else(String::new, |value| value.get_name().to_owned());
        let arguments = [
            "service".into(),
            "--config".into(),
            file.display().to_string(),
            "--log".into(),
            self.log.clone(),
            "--log-format".into(),
            format,
        ];
        Ok(ServiceProgram {
            file: std::env::current_exe()?,
            arguments: arguments.into(),
        })
    }

    /// Starts the log.
    pub fn start_log(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.log)
            .map_err(|e| Exit::Usage.because(format!("--log {}: {e}", self.log)))?;
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(io::stderr);
        match self.log_format {
            LogFormat::Text => log.with_ansi(rustix::termios::isatty(io::stderr())).init(),
            LogFormat::Json => log.json().init(),
        }
        Ok(())
    }
}

/// Adds the next command to an error at the start.
fn advised(error: anyhow::Error) -> anyhow::Error {
    let message = format!("{error:#}");
    if message.contains("hsmux ") {
        return error;
    }
    Exit::of(&error).because(format!("{message}; hsmux doctor says what is wrong"))
}
