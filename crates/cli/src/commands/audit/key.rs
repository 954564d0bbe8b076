//! `hsmux audit key`.

use clap::Args;
use hsmux_audit::AuditFolder;
use serde_json::json;

use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Options of `hsmux audit key`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux audit key > audit.pem             # for those who verify the trail\n  \
    (umask 077; hsmux audit key --seal > audit.seal)    # keep it in a safe, not on this host")]
pub struct AuditKeyCommand {
    /// Print the current secret, which later reveals a past that was rewritten with a stolen state folder
    #[arg(long)]
    seal: bool,
}

impl AuditKeyCommand {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let folder = AuditFolder::of(&context.load()?.state);
        if self.seal {
            let key = folder.seal_key()?;
            if context.json {
                output::json(&json!({ "epoch": key.epoch(), "seal": *key.reveal() }))?;
            } else {
                println!("{}", *key.reveal());
            }
            return Ok(Exit::Done);
        }
        let key = folder.public_key()?;
        if context.json {
            output::json(&json!({ "name": key.name(), "public_key": key.to_string() }))?;
        } else {
            print!("{key}");
        }
        Ok(Exit::Done)
    }
}
