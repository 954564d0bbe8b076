//! Output of the configuration: a file to start from, one with every key, and the page in docs/.

use std::fmt::Write as _;

use super::schema::{ConfigKey, SECTIONS};

/// A file to start from: two tokens, and only keys without a good default.
pub fn example() -> &'static str {
    r#"# hsmux: many PKCS#11 tokens as one. Paths are relative to this file.
#
#   hsmux config check             finds every mistake
#   hsmux config example --full    prints every key that there is

[pool]
label = "web"                   # the one token that programs see

[daemon]
socket = "run/hsmux.sock"
pin = { env = "POOL_PIN" }      # what programs give to C_Login; no token ever sees it

[[token]]
name = "hsm1"
module = "/usr/lib/softhsm/libsofthsm2.so"
uri = "pkcs11:token=hsm1"
pin = { env = "HSM1_PIN" }      # or { file = "hsm1.pin" }, mode 0600, or { credential = "hsm1" }

[[token]]
name = "hsm2"
module = "/usr/lib/softhsm/libsofthsm2.so"
uri = "pkcs11:token=hsm2"
pin = { env = "HSM2_PIN" }
"#
}

/// Every key with its meaning. Keys in comments begin with `#` and no space.
pub fn full_example() -> String {
    let mut out = String::from(
        "# hsmux: every key of the configuration. Paths are relative to this file.\n\
         # A line that begins with # and a key shows what to write, not what holds without it.\n",
    );
    for section in SECTIONS {
        let optional = !section.keys.iter().any(|key| key.shown) || section.name == "listener";
        let mark = if optional { "#" } else { "" };
        out.push('\n');
        comment(&mut out, section.help);
        let _ = writeln!(out, "{mark}{}", section.title());
        for key in section.keys {
            let mark = if optional || !key.shown { "#" } else { "" };
            out.push('\n');
            comment(&mut out, key.help);
            let _ = writeln!(out, "{mark}{} = {}", key.name, key.example);
        }
    }
    out
}

/// Breaks a text into lines of at most 100 columns.
fn comment(out: &mut String, text: &str) {
    const WIDTH: usize = 100;
    let mut line = String::from("#");
    for word in text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

/// The reference page, in Markdown.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Configuration\n\n\
         One TOML file. `$HSMUX_CONFIG` names it; without that it is `/etc/hsmux/hsmux.toml`, or else\n\
         `hsmux/hsmux.toml` in the user's configuration folder. Paths are relative to the file. Times are a\n\
         number and `ms`, `s`, `m` or `h` (`\"30s\"`), from 1ms to 24h unless said otherwise.\n\
         `hsmux config check` finds every mistake with its line; `hsmux config example` prints a file\n\
         to start from, with `--full` one with every key. This page is printed by `hsmux config schema`.\n",
    );
    for section in SECTIONS {
        let _ = write!(out, "\n## `{}`\n\n{}\n\n", section.title(), section.help);
        out.push_str("| key | example | without it | |\n|---|---|---|---|\n");
        for ConfigKey {
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
