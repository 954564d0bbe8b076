//! `hsmux token`.

mod erase;
mod init;
mod slots;

use clap::{Args, Subcommand};
use hsmux_daemon::admin::{AdminFailure, AdminRequest, AdminResponse, DaemonStatus};
use hsmux_daemon::members_file;
use hsmux_module::SlotInfo;
use hsmux_token::Uri;
use std::path::{Path, PathBuf};

pub use slots::SlotRow;

use super::{show, status};
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// A module that most people have.
const EXAMPLE: &str = "/usr/lib/softhsm/libsofthsm2.so";

/// Commands for members and tokens.
#[derive(Subcommand, Debug)]
pub enum TokenCommand {
    /// List the members, or the tokens of a module
    #[command(after_help = "Examples:\n  \
        hsmux token list\n  \
        hsmux token list --module /usr/lib/softhsm/libsofthsm2.so")]
    List(slots::List),
    /// Initialise a token, which erases it
    Init(init::TokenInit),
    /// Show a member in detail
    #[command(after_help = "Example:\n  hsmux token status hsm1")]
    Status {
        /// The member
        member: String,
    },
    /// Put a member into service; with --module and --uri add it to the configuration first
    #[command(after_help = "Examples:\n  \
        hsmux token add hsm3      # it stands in the configuration file already\n  \
        hsmux token add hsm3 --module /usr/lib/softhsm/libsofthsm2.so \\\n    \
          --uri pkcs11:token=hsm3 --pin-file /etc/hsmux/hsm3.pin")]
    Add(Add),
    /// Take a member out of the pool after its running operations
    #[command(after_help = "Examples:\n  \
        hsmux token remove hsm3           # until the next reload or start\n  \
        hsmux token remove hsm3 --forget  # and out of the configuration file")]
    Remove {
        /// The member
        member: String,
        /// Remove it from the configuration file as well
        #[arg(long)]
        forget: bool,
        /// Allow it even for the last member that serves, or that serves some key
        #[arg(long)]
        force: bool,
    },
    /// Take a member out of service, over restarts as well; running operations finish
    #[command(after_help = "Example:\n  hsmux token park hsm2 --reason 'new firmware'")]
    Park {
        /// The member
        member: String,
        /// The reason, for the status
        #[arg(long, default_value = "parked by the administrator")]
        reason: String,
        /// Allow it even for the last member that serves, or that serves some key
        #[arg(long)]
        force: bool,
    },
    /// Put parked members back into service
    #[command(after_help = "Example:\n  hsmux token resume hsm2")]
    Resume {
        /// The members
        #[arg(required = true)]
        members: Vec<String>,
        /// Wait for the end of standard input: for use by another process, see [`crate::rest`]
        #[arg(long, hide = true)]
        at_end_of_input: bool,
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
    /// The token of the module, as a PKCS#11 URI
    #[arg(long, requires = "module")]
    uri: Option<Uri>,
    /// The file with the user PIN
    #[arg(long, requires = "module", value_name = "FILE")]
    pin_file: Option<PathBuf>,
}

impl TokenCommand {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Self::List(list) => list.run(context),
            Self::Init(init) => init.run(context),
            Self::Status { member } => detail(context, &member),
            Self::Add(add) => add.run(context),
            Self::Remove {
                member,
                forget,
                force,
            } => remove(context, &member, forget, force),
            Self::Park {
                member,
                reason,
                force,
            } => show(
                context,
                context.ask(&AdminRequest::TokenPark {
                    token: member,
                    reason,
                    force,
                })?,
            ),
            Self::Resume {
                members,
                at_end_of_input,
            } => {
                if at_end_of_input {
                    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
                }
                resume(context, members)
            }
        }
    }
}

fn remove(context: &Context, member: &str, forget: bool, force: bool) -> anyhow::Result<Exit> {
    let token = member.to_owned();
    if let Err(error) = context.ask(&AdminRequest::TokenRemove { token, force }) {
        let invalid = |failure: &AdminFailure| failure.kind == "Invalid";
        let is_known = || -> anyhow::Result<bool> {
            let members = ask_status(context)?.members;
            Ok(members.iter().any(|known| known.name == member))
        };
        // A removed member may still be in the file.
        if !forget || !error.downcast_ref().is_some_and(invalid) || is_known()? {
            return Err(error);
        }
    }
    let (file, all) = (context.file(), "out of the pool");
    let file = file.display();
    let line = if forget {
        members_file::forget(&context.file(), member)?;
        format!("{member} is {all} and out of {file}")
    } else {
        format!(
            "{member} is {all} until the next reload or start, which bring it back: it is still in {file}; \
             hsmux token remove {member} --forget takes it out of there, too"
        )
    };
    show(context, AdminResponse::Lines(vec![line]))
}

/// Resumes all of them, even if one fails.
fn resume(context: &Context, members: Vec<String>) -> anyhow::Result<Exit> {
    let admin = context.admin()?;
    let mut lines = Vec::new();
    let mut failures = Vec::new();
    for token in members {
        match admin.ask(&AdminRequest::TokenResume { token }) {
            Ok(AdminResponse::Lines(said)) => lines.extend(said),
            Ok(_) => {}
            Err(failure) => failures.push(failure.to_string()),
        }
    }
    if failures.is_empty() || !lines.is_empty() {
        show(context, AdminResponse::Lines(lines))?;
    }
    anyhow::ensure!(failures.is_empty(), failures.join("\n"));
    Ok(Exit::Done)
}

impl Add {
    fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let name = self.member.clone();
        let serve = || context.ask(&AdminRequest::TokenAdd { token: name });
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

/// The tokens of a module.
fn slots_of(context: &Context, module: &Path) -> anyhow::Result<Vec<SlotInfo>> {
    hsmux_module::slots(module).map_err(|error| {
        // `hsmux doctor` has advice of its own.
        if context.json || module.exists() {
            return error.into();
        }
        anyhow::anyhow!("{error}; --module takes the file of a vendor, such as {EXAMPLE}: hsmux token list --module {EXAMPLE}")
    })
}

fn ask_status(context: &Context) -> anyhow::Result<Box<DaemonStatus>> {
    match context.ask(&AdminRequest::Status)? {
        AdminResponse::Status(status) => Ok(status),
        _ => anyhow::bail!("the daemon answered something else"),
    }
}

fn detail(context: &Context, name: &str) -> anyhow::Result<Exit> {
    let daemon = ask_status(context)?;
    let Some(member) = daemon.members.iter().find(|member| member.name == name) else {
        anyhow::bail!("the pool has no member {name}; hsmux token list shows all");
    };
    if context.json {
        output::json(member)?;
        return Ok(Exit::Done);
    }
    status::members(std::slice::from_ref(member));
    let mut details = Vec::new();
    if let Some(token) = &member.token {
        details.extend([
            ("label", token.label.clone()),
            ("serial", token.serial.clone()),
            ("manufacturer", token.manufacturer.clone()),
            ("model", token.model.clone()),
            ("library", token.library.clone()),
            ("slot", token.slot.clone().unwrap_or_default()),
        ]);
    }
    let pids: Vec<_> = member.pids.iter().map(u32::to_string).collect();
    details.push(("processes", pids.join(", ")));
    if details.iter().any(|(_, value)| !value.is_empty()) {
        println!();
        output::record(details);
    }
    Ok(Exit::Done)
}
