//! `hsmux card backup` and `restore`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use hsmux_daemon::admin::LocalAction;
use hsmux_smartcard::pcsc::Channel;
use hsmux_smartcard::provision::{Access, ReceiveResult, backup};
use serde_json::json;

use super::{CardLogin, bar, clone, done, new_file};
use crate::context::Context;
use crate::exit::Exit;

/// Options of `hsmux card backup`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    hsmux card backup web.backup --card DENK0100001\n\n\
    Keys in the file need all shares of the DKEK. Whoever has these, the file and any card can use the keys.")]
pub struct Backup {
    /// The file to write
    file: PathBuf,
    /// Include data objects that need the PIN; they are in clear text in the file
    #[arg(long)]
    protected_data: bool,
    #[command(flatten)]
    login: CardLogin,
}

/// Options of `hsmux card restore`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    hsmux card restore web.backup --card DENK0100002\n\n\
    The card must have the DKEK of the saved card. Equal objects that are present are kept.")]
pub struct Restore {
    /// The file
    file: PathBuf,
    #[command(flatten)]
    login: CardLogin,
}

impl Backup {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let file = self.file.clone();
        let action = |card| LocalAction::CardBackup { card, file };
        let backup = self.login.with(context, action, |access| {
            let (bar, follow) = bar("reading");
            let taken = backup::Backup::take(access, self.protected_data, &follow);
            bar.finish_and_clear();
            let backup = taken?;
            new_file::write(&self.file, &backup.encode()?)?;
            Ok(backup)
        })?;
        let (keys, files) = (backup.keys.len(), backup.files.len());
        let line = format!(
            "card {}: {keys} keys and {files} other files are in {}",
            backup.serial,
            self.file.display()
        );
        let json = json!({
            "serial": backup.serial, "keys": keys, "files": files, "file": self.file,
        });
        done(context, &line, &json)
    }
}

impl Restore {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let name = self.file.display().to_string();
        let bytes = std::fs::read(&self.file).with_context(|| name.clone())?;
        let backup = backup::Backup::parse(&bytes).context(name)?;
        let file = self.file;
        let action = |card| LocalAction::CardRestore { card, file };
        let restore = |access: &mut Access<Channel>| -> anyhow::Result<ReceiveResult> {
            let (bar, follow) = bar("restoring");
            let received = backup.restore(access, &follow);
            bar.finish_and_clear();
            Ok(received?)
        };
        let stage = |received: &ReceiveResult| clone::stage(std::slice::from_ref(received), &[]);
        let received = self.login.with_as(context, action, restore, stage)?;
        clone::show(context, &[received], &[])
    }
}
