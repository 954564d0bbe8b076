//! `hsmux token list`.

use std::path::PathBuf;

use clap::Args;
use hsmux_daemon::admin::{AdminRequest, AdminResponse};
use hsmux_daemon::doctor::FoundToken;
use hsmux_module::SlotInfo;
use hsmux_token::{TokenFlags, TokenInfo};
use serde::{Deserialize, Serialize};

use super::slots_of;
use crate::commands::status;
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Options of `hsmux token list`.
#[derive(Args, Debug)]
pub struct List {
    /// List the tokens of this module in place of the members, without a login
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
}

/// A token of a module.
#[derive(Serialize, Deserialize)]
pub struct SlotRow {
    slot: u64,
    label: String,
    serial: String,
    manufacturer: String,
    model: String,
    library: String,
    library_version: (u8, u8),
    flags: u64,
}

impl List {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let Some(module) = self.module else {
            return members(context);
        };
        let slots = slots_of(context, &module)?;
        let rows: Vec<_> = slots.into_iter().map(SlotRow::from).collect();
        if context.json {
            output::json(&rows)?;
        } else {
            let columns = [
                output::Column::whole("SLOT"),
                output::Column::whole("LABEL"),
                output::Column::whole("SERIAL"),
                output::Column::prose("MODEL"),
                output::Column::prose("STATE"),
            ];
            output::table(&columns, rows.iter().map(SlotRow::cells));
        }
        Ok(Exit::Done)
    }
}

fn members(context: &Context) -> anyhow::Result<Exit> {
    let AdminResponse::Status(daemon) = context.ask(&AdminRequest::Status)? else {
        anyhow::bail!("the daemon answered something else");
    };
    if context.json {
        output::json(&daemon.members)?;
    } else {
        status::members(&daemon.members);
    }
    Ok(Exit::Done)
}

impl SlotRow {
    fn cells(&self) -> Vec<String> {
        let flags = TokenFlags::from_bits_retain(self.flags);
        let states = [
            (TokenFlags::USER_PIN_LOCKED, "PIN locked"),
            (TokenFlags::USER_PIN_FINAL_TRY, "last PIN try"),
            (TokenFlags::USER_PIN_COUNT_LOW, "PIN counter low"),
        ];
        let state = if flags.contains(TokenFlags::TOKEN_INITIALIZED) {
            let bad = states.iter().find(|(flag, _)| flags.contains(*flag));
            bad.map_or("initialised", |(_, state)| state)
        } else {
            "not initialised"
        };
        vec![
            self.slot.to_string(),
            self.label.clone(),
            self.serial.clone(),
            self.model.clone(),
            state.to_owned(),
        ]
    }
}

impl From<SlotInfo> for SlotRow {
    fn from(slot: SlotInfo) -> Self {
        let token = slot.token;
        Self {
            slot: slot.id,
            label: token.label,
            serial: token.serial,
            manufacturer: token.manufacturer,
            model: token.model,
            library: token.library,
            library_version: token.library_version,
            flags: token.flags.bits(),
        }
    }
}

impl From<SlotRow> for FoundToken {
    fn from(row: SlotRow) -> Self {
        Self {
            slot: row.slot,
            token: TokenInfo {
                label: row.label,
                serial: row.serial,
                manufacturer: row.manufacturer,
                model: row.model,
                library: row.library,
                library_version: row.library_version,
                flags: TokenFlags::from_bits_retain(row.flags),
                ..TokenInfo::default()
            },
        }
    }
}
