//! `hsmux vcard`.

mod run;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hsmux_vcard::Order;
use hsmux_vcard::reader::{CardState, ControlRequest, ask};

use crate::context::Context;
use crate::exit::Exit;
use crate::{output, progress};

/// Virtual SmartCard-HSMs, for tests and training; they protect nothing.
#[derive(Subcommand, Debug)]
pub enum Vcard {
    /// Run virtual cards in separate readers, until Ctrl+C or the end of a command
    Run(run::RunCards),
    /// Show the running cards
    #[command(after_help = "Example:\n  hsmux vcard list")]
    List(RunningCards),
    /// Pull a running card, plug it in, or order faults
    #[command(after_help = "Orders:\n  \
        unplug             leave its reader, even during a command\n  \
        plug               return to its reader\n  \
        mute               give no answer\n  \
        slow=MS            answer this number of milliseconds later\n  \
        wrong-signature    return invalid signatures\n  \
        status=WORD        refuse with this status word, as 6F00\n  \
        power-loss=N       lose power after N changes of the command's memory\n  \
        clear              end all faults\n\n\
        Examples:\n  \
        hsmux vcard fault 3 unplug\n  \
        hsmux vcard fault 0 wrong-signature --times 1\n  \
        hsmux vcard fault 0 slow=500 --ins 68       # SIGN only")]
    Fault {
        /// The card, counted from 0 in the order of OpenSC's readers
        card: usize,
        /// The order
        order: Order,
        /// The number of affected commands [default: until clear]
        #[arg(long, value_name = "N")]
        times: Option<u32>,
        /// Affect only commands with this instruction byte, in hexadecimal
        #[arg(long, value_name = "INS", value_parser = byte)]
        ins: Option<u8>,
        #[command(flatten)]
        running: RunningCards,
    },
    /// End or restart the pcscd of the running cards
    #[command(after_help = "Examples:\n  hsmux vcard pcscd stop\n  hsmux vcard pcscd start")]
    Pcscd {
        /// The action
        #[arg(value_enum)]
        act: Act,
        #[command(flatten)]
        running: RunningCards,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Act {
    /// End it: programs find no PC/SC service
    Stop,
    /// Restart it
    Start,
}

/// The folder of running cards.
#[derive(Args, Debug)]
pub struct RunningCards {
    /// The folder of the cards, as `hsmux vcard run` prints it
    #[arg(long, env = run::FOLDER, value_name = "DIR")]
    folder: PathBuf,
}

impl Vcard {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let (running, request) = match self {
            Self::Run(command) => return command.run(context),
            Self::List(running) => (running, ControlRequest::List),
            Self::Fault {
                card,
                order,
                times,
                ins,
                running,
            } => {
                let order = order.only(times, ins);
                (running, ControlRequest::Card { card, order })
            }
            Self::Pcscd { act, running } => match act {
                Act::Stop => (running, ControlRequest::StopPcscd),
                Act::Start => (running, ControlRequest::StartPcscd),
            },
        };
        let waiting = progress::spinner("waiting for pcscd");
        let cards = ask(&running.folder, &request);
        waiting.finish_and_clear();
        show(context, &cards?)?;
        Ok(Exit::Done)
    }
}

fn byte(text: &str) -> Result<u8, String> {
    u8::from_str_radix(text, 16).map_err(|_| "two hexadecimal digits, as 68".to_owned())
}

fn show(context: &Context, cards: &[CardState]) -> anyhow::Result<()> {
    if context.json {
        return output::json(&cards);
    }
    let row = |card: &CardState| {
        let state = if card.plugged {
            "plugged in"
        } else {
            "unplugged"
        };
        vec![
            card.card.to_string(),
            card.serial.clone(),
            state.to_owned(),
            card.reader.clone(),
        ]
    };
    let columns = [
        output::Column::whole("CARD"),
        output::Column::whole("SERIAL"),
        output::Column::prose("STATE"),
        output::Column::prose("READER"),
    ];
    output::table(&columns, cards.iter().map(row));
    Ok(())
}
