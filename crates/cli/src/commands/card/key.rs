//! `hsmux card key`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use hsmux_daemon::admin::LocalAction;
use hsmux_smartcard::KeyReference;
use hsmux_smartcard::dkek::WrappedKeyFile;
use hsmux_smartcard::provision::KeyPackage;
use hsmux_smartcard::provision::package::{InstallOutcome, unwrap, wrap};
use serde_json::json;

use super::{CardLogin, done, key_reference, new_file};
use crate::context::Context;
use crate::exit::Exit;

/// Single keys in files, in the format of sc-hsm-tool.
#[derive(Subcommand, Debug)]
pub enum CardKeyCommand {
    /// Write a key, its description and its certificate into a file, wrapped under the DKEK
    #[command(after_help = "Example:\n  \
        hsmux card key wrap web.key --card DENK0100001 --key 1\n\n\
        The file has the format of sc-hsm-tool --wrap-key.")]
    Wrap(InFile),
    /// Import a key from a file to a card with the same DKEK; if it fails its proof, it is deleted
    #[command(after_help = "Example:\n  \
        hsmux card key unwrap web.key --card DENK0100002 --key 1\n\n\
        The file may be from sc-hsm-tool --wrap-key. The key is proved by the certificate or request in\n\
        the file. Without either only the card checks it.")]
    Unwrap(InFile),
}

/// A key, and its file.
#[derive(Args, Debug)]
pub struct InFile {
    /// The file
    file: PathBuf,
    /// The key's number on the card
    #[arg(long, value_name = "NUMBER", value_parser = key_reference)]
    key: KeyReference,
    #[command(flatten)]
    login: CardLogin,
}

impl CardKeyCommand {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Self::Wrap(key) => key.wrap(context),
            Self::Unwrap(key) => key.unwrap(context),
        }
    }
}

impl InFile {
    fn wrap(self, context: &Context) -> anyhow::Result<Exit> {
        let (key, file) = (self.key.0, self.file.clone());
        let action = |card| LocalAction::CardKeyWrap { card, key, file };
        self.login.with(context, action, |access| {
            let package = wrap(access, self.key)?;
            new_file::write(&self.file, &package.to_file().to_der())
        })?;
        let line = format!("{} is in {}", self.key, self.file.display());
        done(
            context,
            &line,
            &json!({ "key": self.key.0, "file": self.file }),
        )
    }

    fn unwrap(self, context: &Context) -> anyhow::Result<Exit> {
        let name = self.file.display().to_string();
        let bytes = std::fs::read(&self.file).with_context(|| name.clone())?;
        let file = WrappedKeyFile::parse(&bytes).with_context(|| name.clone())?;
        let package = KeyPackage::from_file(file, self.key);
        let proved = package.proof.is_some();
        let (key, file) = (self.key.0, self.file);
        let action = |card| LocalAction::CardKeyUnwrap { card, key, file };
        let (serial, installed) = self.login.with(context, action, |access| {
            let installed = unwrap(access, &package)?;
            Ok((access.serial.clone(), installed))
        })?;
        let what = match installed {
            InstallOutcome::Copied => "is on",
            InstallOutcome::Completed => "was on, and now is whole on",
            InstallOutcome::Present => "was already on",
        };
        let how = if proved {
            "proved"
        } else {
            "not proved: the file has no public key"
        };
        let line = format!("{} {what} card {serial}, {how}", self.key);
        let json = json!({ "key": self.key.0, "serial": serial, "proved": proved });
        done(context, &line, &json)
    }
}
