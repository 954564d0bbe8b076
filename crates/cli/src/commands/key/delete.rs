//! `hsmux key delete`: lists the matches, asks, and deletes exactly these.

use std::collections::BTreeSet;

use clap::Args;
use hsmux_daemon::admin::{AdminRequest, KeyRow};

use super::KeyChoice;
use super::{ask, keys};
use crate::consent::{consent, typed};
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Options of `hsmux key delete`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux key delete --label old --dry-run\n  \
    hsmux key delete --label old --type public\n  \
    hsmux key delete --label old --all\n  \
    hsmux key delete --label old --all --yes --confirm old\n\n\
    To delete a private or secret key, type its label or give it with --confirm.")]
// Each is a flag of the command line.
#[allow(clippy::struct_excessive_bools)]
pub struct Delete {
    #[command(flatten)]
    choice: KeyChoice,
    /// Delete all matching objects, if there are several
    #[arg(long)]
    all: bool,
    /// List the matching objects without deleting them
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation; private and secret keys need --confirm as well
    #[arg(long)]
    yes: bool,
    /// The label of a private or secret key (its id if it has no label); may be repeated
    #[arg(long, value_name = "LABEL")]
    confirm: Vec<String>,
    /// Delete keys of the broker as well: data that they encrypted are lost
    #[arg(long)]
    broker_keys: bool,
}

impl Delete {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let uri = self.choice.required()?.to_string();
        let found = keys(
            &context.admin()?,
            &AdminRequest::KeyFind { key: uri.clone() },
        )?;
        if self.dry_run && context.json {
            output::json(&found)?;
            return Ok(Exit::Done);
        }
        let list: Vec<_> = found.iter().map(line).collect();
        if !context.json {
            println!("{}", list.join("\n"));
        }
        if self.dry_run {
            println!("dry run: nothing was deleted");
            return Ok(Exit::Done);
        }
        if found.len() > 1 && !self.all {
            let why = format!(
                "{} objects match {uri}; nothing was deleted. Add --all to delete them all, or --type or --id for one",
                found.len()
            );
            return Err(Exit::Usage.because(why));
        }
        self.confirmed(&found)?;
        let objects = found
            .into_iter()
            .map(|row| (row.object.class, row.object.name))
            .collect();
        ask(
            context,
            "deleting",
            &AdminRequest::KeyDelete {
                key: uri,
                objects,
                broker_keys: self.broker_keys,
            },
        )
    }

    /// Asks for confirmations that the command line lacks.
    fn confirmed(&self, found: &[KeyRow]) -> anyhow::Result<()> {
        let keys: BTreeSet<_> = found.iter().filter_map(key_name).collect();
        for name in &keys {
            if self.confirm.iter().any(|given| given == name) {
                continue;
            }
            typed(
                name,
                &format!("To delete the key {name:?} from all members for ever, type its name: "),
                &format!("deleting the key {name:?} from all members needs --confirm {name}"),
                "nothing was deleted",
            )?;
        }
        let given = !keys.is_empty() || self.yes;
        consent(
            given,
            "deleting from all members",
            "Delete from all members, for ever",
        )
    }
}

/// The label of a private or secret key, or its id.
fn key_name(row: &KeyRow) -> Option<String> {
    let object = &row.object;
    let key = matches!(object.class.as_str(), "private key" | "secret key");
    let name = Some(&object.label).filter(|label| !label.is_empty());
    key.then(|| name.unwrap_or(&object.id).clone())
}

fn line(row: &KeyRow) -> String {
    let object = &row.object;
    format!(
        "{} {:?}, id {}, on {}",
        object.class,
        object.label,
        if object.id.is_empty() {
            "none"
        } else {
            &object.id
        },
        object.members.join(" ")
    )
}
