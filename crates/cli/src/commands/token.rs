//! `hsmux token`.

mod init;
mod slots;

use clap::{Args, Subcommand};
use hsmux_daemon::admin::{Request, Response};
use hsmux_daemon::members_file;
use hsmux_token::Uri;
use std::path::PathBuf;

pub use slots::SlotRow;

use super::{show, status};
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Commands about members and tokens.
#[derive(Subcommand, Debug)]
pub enum Token {
    /// List the members, or the tokens of a module
    #[command(after_help = "Examples:\n  \
        hsmux token list\n  \
        hsmux token list --module /usr/lib/softhsm/libsofthsm2.so")]
    List(slots::List),
    /// Initialise a token, which erases it
    Init(init::Init),
    /// Show a member in detail
    #[command(after_help = "Example:\n  hsmux token status hsm1")]
    Status {
        /// The member
        member: String,
    },
    /// Put a member into service; with --module and --uri it is written into the configuration first
    #[command(after_help = "Examples:\n  \
        hsmux token add hsm3      # it stands in the configuration file already\n  \
        hsmux token add hsm3 --module /usr/lib/softhsm/libsofthsm2.so \\\n    \
          --uri pkcs11:token=hsm3 --pin-file /etc/hsmux/hsm3.pin")]
    Add(Add),
    /// Take a member out of the pool, when what it runs is done
    #[command(after_help = "Examples:\n  \
        hsmux token remove hsm3           # until the daemon starts anew\n  \
        hsmux token remove hsm3 --forget  # and out of the configuration file")]
    Remove {
        /// The member
        member: String,
        /// Take it out of the configuration file, too
        #[arg(long)]
        forget: bool,
    },
    /// Let a member rest: it finishes what it has, and is given nothing more
    #[command(after_help = "Example:\n  hsmux token park hsm2 --reason 'new firmware'")]
    Park {
        /// The member
        member: String,
        /// Why, for those who look at the status later
        #[arg(long, default_value = "parked by the administrator")]
        reason: String,
    },
    /// Put a parked member back into service
    #[command(after_help = "Example:\n  hsmux token resume hsm2")]
    Resume {
        /// The member
        member: String,
    },
}

/// Options of `hsmux token add`.
#[derive(Args, Debug)]
pub struct Add {
    /// The member's name
    member: String,
    /// The vendor's PKCS#11 module
    #[arg(long, requires = "uri", value_name = "FILE")]
    module: Option<PathBuf>,
    /// Which of its tokens, as a PKCS#11 URI
    #[arg(long, requires = "module")]
    uri: Option<Uri>,
    /// The file that holds the user PIN
    #[arg(long, requires = "module", value_name = "FILE")]
    pin_file: Option<PathBuf>,
}

impl Token {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Self::List(list) => list.run(context),
            Self::Init(init) => init.run(context),
            Self::Status { member } => detail(context, &member),
            Self::Add(add) => add.run(context),
            Self::Remove { member, forget } => {
                let answer = context.ask(&Request::TokenRemove {
                    token: member.clone(),
                })?;
                if forget {
                    members_file::forget(&context.file(), &member)?;
                }
                show(context, answer)
            }
            Self::Park { member, reason } => show(
                context,
                context.ask(&Request::TokenPark {
                    token: member,
                    reason,
                })?,
            ),
            Self::Resume { member } => show(
                context,
                context.ask(&Request::TokenResume { token: member })?,
            ),
        }
    }
}

impl Add {
    fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let name = self.member.clone();
        let serve = || context.ask(&Request::TokenAdd { token: name });
        let answer = match (self.module, self.uri) {
            (Some(module), Some(uri)) => {
                let member = members_file::NewMember {
                    name: self.member,
                    module,
                    uri,
                    pin_file: self.pin_file,
                };
                members_file::add(&context.file(), &member, serve)
            }
            _ => serve(),
        };
        show(context, answer?)
    }
}

fn detail(context: &Context, name: &str) -> anyhow::Result<Exit> {
    let Response::Status(daemon) = context.ask(&Request::Status)? else {
        anyhow::bail!("the daemon answered something else");
    };
    let Some(member) = daemon.members.iter().find(|member| member.name == name) else {
        anyhow::bail!("the pool has no member {name}; hsmux token list shows all");
    };
    if context.json {
        output::json(member)?;
        return Ok(Exit::Done);
    }
    status::members(std::slice::from_ref(member));
    if let Some(token) = &member.token {
        println!(
            "\nlabel         {}\nserial        {}\nmanufacturer  {}\nmodel         {}\nlibrary       {}",
            token.label, token.serial, token.manufacturer, token.model, token.library
        );
        if let Some(slot) = &token.slot {
            println!("slot          {slot}");
        }
    }
    let pids: Vec<_> = member.pids.iter().map(u32::to_string).collect();
    if !pids.is_empty() {
        println!("processes     {}", pids.join(", "));
    }
    Ok(Exit::Done)
}
