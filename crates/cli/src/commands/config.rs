//! `hsmux config`.

use clap::Subcommand;
use hsmux_config::Mistake;

use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Commands for the configuration.
#[derive(Subcommand, Debug)]
pub enum ConfigCommand {
    /// Find every mistake of the configuration, with its line
    #[command(after_help = "Examples:\n  \
        hsmux config check\n  \
        hsmux --config ./hsmux.toml config check --json\n\n\
        Exit code 2 if there is an error; 0 if there are only warnings.")]
    Check,
    /// Print an example to start from
    #[command(after_help = "Examples:\n  \
        hsmux config example > hsmux.toml\n  \
        hsmux config example --full | less")]
    Example {
        /// Print every key with its meaning
        #[arg(long)]
        full: bool,
    },
    /// Print the path of the configuration file
    #[command(after_help = "Example:\n  hsmux config path")]
    Path,
    /// Print the reference of all keys, in Markdown
    #[command(after_help = "Example:\n  hsmux config schema > docs/configuration.md")]
    Schema,
}

impl ConfigCommand {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let text = match self {
            Self::Check => return check(context),
            Self::Path if context.json => context.file().display().to_string(),
            Self::Path => format!("{}\n", context.file().display()),
            Self::Example { full: true } => hsmux_config::full_example(),
            Self::Example { full: false } => hsmux_config::example().to_owned(),
            Self::Schema => hsmux_config::markdown(),
        };
        output::document(&text, context.json)?;
        Ok(Exit::Done)
    }
}

fn check(context: &Context) -> anyhow::Result<Exit> {
    let file = context.file();
    let mistakes = hsmux_config::check(&file);
    let errors = mistakes.iter().filter(|mistake| mistake.is_error()).count();
    if context.json {
        output::json(&mistakes)?;
    } else {
        mistakes
            .iter()
            .map(Mistake::to_string)
            .for_each(|line| println!("{line}"));
        let warnings = mistakes.len() - errors;
        match (errors, warnings) {
            (0, 0) => println!("{}: good", file.display()),
            (0, _) => println!("{}: good, with warnings", file.display()),
            _ => println!(
                "{}: errors: {errors}, warnings: {warnings}; hsmux config schema explains every key",
                file.display()
            ),
        }
    }
    Ok(if errors == 0 { Exit::Done } else { Exit::Usage })
}
