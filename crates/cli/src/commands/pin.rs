//! `hsmux pin`.

use clap::Subcommand;
use hsmux_daemon::admin::{AdminRequest, PinRow, list_pins, release_pin};

use super::show as show_response;
use crate::context::Context;
use crate::exit::Exit;
use crate::{output, progress};

/// Commands for the members' PINs.
#[derive(Subcommand, Debug)]
pub enum PinCommand {
    /// Show the records of PINs: which are correct, and which are held
    #[command(after_help = "Example:\n  hsmux pin list")]
    List,
    /// Allow one more try of a held PIN
    #[command(after_help = "Examples:\n  hsmux pin release hsm2\n  \
        hsmux pin release pkcs11:serial=DENK0100001    # a card that is no member\n\n\
        A PIN is held if the token refused it, or if the outcome of a login is unknown.")]
    Release {
        /// The member, or the URI of a token
        member: String,
    },
    /// Replace the members' PINs by random ones, one after the other; repeat after an interruption
    #[command(after_help = "Examples:\n  \
        hsmux pin rotate\n  \
        hsmux pin rotate hsm1 hsm2\n\n\
        New PINs are written to the PIN files of the configuration before they are set on the tokens.\n\
        After an interruption a second run changes only the remaining PINs.")]
    Rotate {
        /// The members [default: all]
        members: Vec<String>,
    },
}

impl PinCommand {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let running = context.is_served()?;
        let request = match self {
            // The records exist without a daemon as well.
            Self::List if !running => return show(context, &list_pins(&context.load()?)?),
            Self::Release { member } if !running => {
                return show(context, &release_pin(&context.load()?, &member)?);
            }
            Self::List => AdminRequest::PinList,
            Self::Release { member } => AdminRequest::PinRelease { token: member },
            Self::Rotate { members } => AdminRequest::PinRotate { tokens: members },
        };
        let waiting = progress::spinner("working on the members");
        let answer = context.ask(&request);
        waiting.finish_and_clear();
        show_response(context, answer?)
    }
}

/// Prints records of PINs.
pub fn show(context: &Context, rows: &[PinRow]) -> anyhow::Result<Exit> {
    if context.json {
        output::json(&rows)?;
        return Ok(Exit::Done);
    }
    let row = |row: &PinRow| {
        vec![
            row.label.clone(),
            row.serial.clone(),
            if row.held { "held" } else { "usable" }.to_owned(),
            row.outcome.clone(),
            row.time.to_string(),
        ]
    };
    let columns = [
        output::Column::whole("TOKEN"),
        output::Column::whole("SERIAL"),
        output::Column::whole("PIN"),
        output::Column::prose("WHY"),
        output::Column::whole("SINCE"),
    ];
    output::table(&columns, rows.iter().map(row));
    Ok(Exit::Done)
}
