//! Interaction of `hsmux` and `hsmux-lab` with users: tables, errors, exit codes, questions and PIN prompts.
//! It has no commands: those belong to the programs.

pub mod consent;
pub mod context;
pub mod exit;
pub mod key_choice;
pub mod memory;
pub mod output;
pub mod pin;
pub mod pool;
pub mod program;
pub mod progress;
pub mod rest;
pub mod shell;
