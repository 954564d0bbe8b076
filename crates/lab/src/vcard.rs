//! `hsmux vcard`.

mod run;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hsmux_vcard::Order;
use hsmux_vcard::reader::{CardState, Request, ask};

use crate::context::Context;
use crate::exit::Exit;
use crate::{output, progress};

/// Virtual SmartCard-HSMs, for tests and for trying things out: they protect nothing.
#[derive(Subcommand, Debug)]
pub enum Vcard {
    /// Run virtual cards in readers of their own, until Ctrl+C or the end of a command
    Run(run::Run),
    /// Show the cards that run
    #[command(after_help = "Example:\n  hsmux vcard list")]
    List(Place),
    /// Pull a running card, plug it in, or have it misbehave
    #[command(after_help = "What a card can be ordered to do:\n  \
        unplug             leave its reader, in the middle of a command if there is one\n  \
        plug               come back\n  \
        mute               not answer\n  \
        slow=MS            answer so many milliseconds later\n  \
        wrong-signature    sign so that it does not verify\n  \
        status=WORD        refuse with this status word, as 6F00\n  \
        power-loss=N       lose its power when N changes of the command are in its memory\n  \
        clear              do none of this any more\n\n\
        Examples:\n  \
        hsmux vcard fault 3 unplug\n  \
        hsmux vcard fault 0 wrong-signature --times 1\n  \
        hsmux vcard fault 0 slow=500 --ins 68       # SIGN only")]
    Fault {
        /// The card, counted from 0 as OpenSC counts readers
        card: usize,
        /// What it is to do
        order: Order,
        /// With so many commands [default: until clear]
        #[arg(long, value_name = "N")]
        times: Option<u32>,
        /// With commands of this instruction byte only, in hexadecimal
        #[arg(long, value_name = "INS", value_parser = byte)]
        ins: Option<u8>,
        #[command(flatten)]
        place: Place,
    },
    /// End the pcscd of the running cards, or start it again
    #[command(after_help = "Examples:\n  hsmux vcard pcscd stop\n  hsmux vcard pcscd start")]
    Pcscd {
        /// What to do with it
        #[arg(value_enum)]
        act: Act,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Act {
    /// End it: programs find no PC/SC service
    Stop,
    /// Start it, after the one that ran has been ended
    Start,
}

/// Which cards.
#[derive(Args, Debug)]
pub struct Place {
    /// Their folder, as `hsmux vcard run` prints it
    #[arg(long, env = run::FOLDER, value_name = "DIR")]
    folder: PathBuf,
}

impl Vcard {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let (place, request) = match self {
            Self::Run(command) => return command.run(context),
            Self::List(place) => (place, Request::List),
            Self::Fault {
                card,
                order,
                times,
                ins,
                place,
            } => {
                let order = order.only(times, ins);
                (place, Request::Card { card, order })
            }
            Self::Pcscd { act, place } => match act {
                Act::Stop => (place, Request::StopPcscd),
                Act::Start => (place, Request::StartPcscd),
            },
        };
        let waiting = progress::spinner("waiting for pcscd");
        let cards = ask(&place.folder, &request);
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
    output::table(
        &["card", "serial", "state", "reader"],
        cards.iter().map(row),
    );
    Ok(())
}
