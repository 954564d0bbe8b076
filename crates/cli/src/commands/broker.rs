//! `hsmux broker`.

use clap::Args;
use hsmux_broker::store::Store;
use hsmux_daemon::admin::LocalAction;
use std::path::PathBuf;

use super::serve::Serve;
use crate::context::Context;
use crate::exit::Exit;

/// Options of `hsmux broker`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux broker\n  \
    hsmux broker --backup /var/backups/broker.sqlite\n\n\
    It serves [broker] of the configuration over HTTP, beside the sockets for PKCS#11. hsmux serve does\n\
    the same if there is a [broker]; this command fails without that section.\n\
    SIGTERM and Ctrl+C end it.")]
pub struct BrokerCommand {
    /// Copy the store into a new file and exit; works while the broker runs
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,

    #[command(flatten)]
    serve: Serve,
}

impl BrokerCommand {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let config = context.load()?;
        let section = config.broker.as_ref().ok_or_else(|| {
            let file = context.file();
            let message = format!(
                "{}: there is no [broker]; add it with listen = [\"127.0.0.1:8200\"]: hsmux config example --full shows it",
                file.display()
            );
            Exit::Usage.because(message)
        })?;
        let Some(to) = self.backup else {
            return self.serve.run(context);
        };
        let action = LocalAction::BrokerBackup { file: to.clone() };
        context.recorded(&action, || Ok(Store::backup(&section.store, &to)?))?;
        if context.json {
            crate::output::json(&to)?;
        } else {
            println!("{}", to.display());
        }
        Ok(Exit::Done)
    }
}
