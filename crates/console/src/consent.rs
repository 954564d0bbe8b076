//! Questions at the terminal before a command does something final, or something that users of the pool notice.

use std::io::{IsTerminal, Write};

/// Succeeds with `--yes`, or if the user at the terminal agrees. `what` starts a sentence, such as
/// "deleting from all members"; `question` has no question mark.
pub fn consent(yes: bool, what: &str, question: &str) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    anyhow::ensure!(
        std::io::stdin().is_terminal(),
        "{what} needs --yes; nothing was done"
    );
    let said = answer(&format!("{question}? [y/N] "))?;
    anyhow::ensure!(said.eq_ignore_ascii_case("y"), "nothing was done");
    Ok(())
}

/// Succeeds if the user at the terminal types `name`. `refusal` names the option for use without a terminal;
/// `undone` says that nothing has happened.
pub fn typed(name: &str, question: &str, refusal: &str, undone: &str) -> anyhow::Result<()> {
    anyhow::ensure!(std::io::stdin().is_terminal(), "{refusal}; {undone}");
    let said = answer(question)?;
    anyhow::ensure!(said == name, "that is not {name:?}; {undone}");
    Ok(())
}

/// Reports the loss and asks for the token's or card's name, unless `yes`. The name is the first in `names` that is
/// not empty: its label, or else an identifier.
pub fn erasure(yes: bool, kind: &str, names: &[&str], lost: &str) -> anyhow::Result<()> {
    eprintln!("to be erased: {lost}");
    if yes {
        return Ok(());
    }
    let name = names.iter().find(|name| !name.is_empty()).unwrap_or(&kind);
    typed(
        name,
        &format!("To erase the {kind} {name:?} for ever, type its name: "),
        &format!("erasing the {kind} {name:?} needs --yes"),
        "nothing was erased",
    )
}

/// Reads a line from the terminal, without surrounding spaces.
pub fn answer(question: &str) -> anyhow::Result<String> {
    print!("{question}");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(answer.trim().to_owned())
}
