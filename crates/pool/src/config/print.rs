//! The schema for people: an example to start from, and the page in docs/.

use std::fmt::Write as _;

use super::schema::{Key, SECTIONS};

/// A commented example of the whole file.
pub fn example() -> String {
    let mut out = String::from(
        "# hsmux: many PKCS#11 tokens as one. Paths are relative to this file.\n\
         # Check it with: hsmux config check\n",
    );
    for section in SECTIONS {
        let optional = !section.keys.iter().any(|key| key.shown) || section.name == "listener";
        let mark = if optional { "# " } else { "" };
        let _ = write!(out, "\n# {}\n{mark}{}\n", section.help, section.title());
        for key in section.keys {
            let mark = if optional || !key.shown { "# " } else { "" };
            let line = format!("{mark}{} = {}", key.name, key.example);
            let _ = writeln!(out, "{line:<34} # {}", key.help);
        }
    }
    out
}

/// The reference page, in Markdown.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Configuration\n\n\
         One TOML file. `$HSMUX_CONFIG` names it; without that it is `/etc/hsmux/hsmux.toml`, or else\n\
         `hsmux/hsmux.toml` in the user's configuration folder. Paths are relative to the file. Times are a\n\
         number and `ms`, `s`, `m` or `h` (`\"30s\"`), from 1ms to 24h unless said otherwise.\n\
         `hsmux config check` finds every mistake with its line; `hsmux config example` prints a file\n\
         to start from. This page is printed by `hsmux config schema`.\n",
    );
    for section in SECTIONS {
        let _ = write!(out, "\n## `{}`\n\n{}\n\n", section.title(), section.help);
        out.push_str("| key | example | without it | |\n|---|---|---|---|\n");
        for Key {
            name,
            example,
            default,
            help,
            ..
        } in section.keys
        {
            let literal = default.starts_with(['"', '[']) || default == example;
            let mark = if literal { "`" } else { "" };
            let _ = writeln!(
                out,
                "| `{name}` | `{example}` | {mark}{default}{mark} | {help} |"
            );
        }
    }
    out
}
