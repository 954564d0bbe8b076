//! Members written into the configuration file, and taken out of it, with all else left as it is.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use hsmux_pool::config::{self, Mistake};
use hsmux_token::{Error, Kind, Result, Uri};

/// A `[[token]]` to be written.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// Its name.
    pub name: String,
    /// The vendor's module.
    pub module: PathBuf,
    /// Which of its tokens.
    pub uri: Uri,
    /// The file of its PIN.
    pub pin_file: Option<PathBuf>,
}

/// Appends a member to the file. The file stays as it was if it would not be good with it.
pub fn add(file: &Path, member: &NewMember) -> Result<()> {
    let mut text = read(file)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let mut section = format!(
        "\n[[token]]\nname = {}\nmodule = {}\nuri = {}\n",
        quoted(&member.name),
        quoted(&absolute(&member.module)?),
        quoted(&member.uri.to_string()),
    );
    if let Some(pin) = &member.pin_file {
        section += "pin = { file = ";
        section += &quoted(&absolute(pin)?);
        section += " }\n";
    }
    text += &section;
    replace(file, &text)
}

/// Takes a member out of the file; comments above it stay.
pub fn forget(file: &Path, name: &str) -> Result<()> {
    let text = read(file)?;
    let config = config::parse(file, &text).map_err(|mistakes| mistaken(&mistakes))?;
    let member = config.member(name).ok_or_else(|| {
        let message = format!("{} has no member {name}", file.display());
        Error::request(Kind::Invalid, message)
    })?;
    let lines: Vec<&str> = text.lines().collect();
    let start = member.line - 1;
    let next = lines[start + 1..]
        .iter()
        .position(|line| line.starts_with('['));
    let end = next.map_or(lines.len(), |next| start + 1 + next);
    // What is said above the next section is about that one.
    let about_next = |line: &&&str| line.starts_with('#') || line.is_empty();
    let end = end
        - lines[start..end]
            .iter()
            .rev()
            .take_while(about_next)
            .count();
    let mut kept = [&lines[..start], &lines[end..]].concat();
    kept.push("");
    replace(file, &kept.join("\n"))
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|e| failed(file, &e))
}

/// Writes a good text in place of the old one, at once or not at all, with the same permissions.
fn replace(file: &Path, text: &str) -> Result<()> {
    config::parse(file, text).map_err(|mistakes| mistaken(&mistakes))?;
    let file = fs::canonicalize(file).map_err(|e| failed(file, &e))?;
    let draft = file.with_extension(format!("toml.{}", std::process::id()));
    let written = fs::File::create_new(&draft).and_then(|mut new| {
        new.set_permissions(fs::metadata(&file)?.permissions())?;
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        fs::rename(&draft, &file)
    });
    written.map_err(|e| {
        let _ = fs::remove_file(&draft);
        failed(&file, &e)
    })
}

fn quoted(text: &str) -> String {
    // JSON's strings are TOML's basic strings.
    serde_json::Value::from(text).to_string()
}

fn absolute(path: &Path) -> Result<String> {
    let path = std::path::absolute(path).map_err(|e| failed(path, &e))?;
    Ok(path.display().to_string())
}

fn mistaken(mistakes: &[Mistake]) -> Error {
    let lines: Vec<_> = mistakes.iter().map(Mistake::to_string).collect();
    Error::request(Kind::Environment, lines.join("\n"))
}

fn failed(file: &Path, error: &std::io::Error) -> Error {
    Error::request(Kind::Environment, format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_and_forgotten_leaves_the_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hsmux.toml");
        let before = "[pool]\nlabel = \"web\"\n\n# the first\n[[token]]\nmodule = \"a.so\"\n\
                      uri = \"pkcs11:token=a\"\n";
        fs::write(&file, before).unwrap();
        let member = NewMember {
            name: "b \"2\"".into(),
            module: "/b.so".into(),
            uri: "pkcs11:token=b%202".parse().unwrap(),
            pin_file: Some("/b.pin".into()),
        };
        add(&file, &member).unwrap();
        let config = config::load(&file).unwrap();
        assert_eq!(config.member("b \"2\"").unwrap().uri, member.uri);
        let again = add(&file, &member).unwrap_err();
        assert!(again.to_string().contains("stands already"), "{again}");

        forget(&file, "a").unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            text.contains("# the first") && !text.contains("a.so"),
            "{text}"
        );
        add(
            &file,
            &NewMember {
                name: "c".into(),
                module: "/c.so".into(),
                ..member
            },
        )
        .unwrap();
        forget(&file, "c").unwrap();
        assert_eq!(
            fs::read_to_string(&file).unwrap().trim_end(),
            text.trim_end()
        );
        assert!(forget(&file, "c").is_err());
    }
}
