//! What the programs `hsmux` and `hsmux-lab` show to a person: tables, errors and exit codes, questions and PIN prompts.
//! It holds no command: what one program alone does is in that program.

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
