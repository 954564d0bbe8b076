//! Adds members to the configuration file and removes them. All else in the file stays as it is.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use hsmux_config::{Config, Member, Mistake};
use hsmux_state::FileLock;
use hsmux_token::{Error, Kind, Result, Uri};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The longest wait for another command that changes the file.
const PATIENCE: Duration = Duration::from_secs(10);

/// A `[[token]]` to be written.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// Its name.
    pub name: String,
    /// The vendor's module.
    pub module: PathBuf,
    /// The token, of those that the module shows.
    pub uri: Uri,
    /// The file of its PIN.
    pub pin_file: Option<PathBuf>,
}

/// Appends a member to the file and has it served. If that fails, the member is removed from the file again. If the new
/// file would not be valid, it is not written.
pub fn add<T, E: From<Error>>(
    file: &Path,
    member: &NewMember,
    serve: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let section = section(member)?;
    let lock = locked(file)?;
    let text = read(file)?;
    refuse_namesake(file, &text, &member.name)?;
    replace(file, &(text + &section))?;
    drop(lock);
    serve().or_else(|error| {
        forget(file, &member.name)?;
        Err(error)
    })
}

/// Refuses a name that another section of the file has.
fn refuse_namesake(file: &Path, text: &str, name: &str) -> Result<()> {
    let config = parse(file, text)?;
    let Some(Member { line, .. }) = config.member(name) else {
        return Ok(());
    };
    let message = format!(
        "{}:{line}: the name {name} stands already here. `hsmux token add {name}`, without --module, puts this member into \
         service; `hsmux token list` shows those that are",
        file.display()
    );
    Err(Error::request(Kind::Invalid, message))
}

fn section(member: &NewMember) -> Result<String> {
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
    Ok(section)
}

/// Removes a member from the file. Comments above it stay.
pub fn forget(file: &Path, name: &str) -> Result<()> {
    let _lock = locked(file)?;
    let text = read(file)?;
    let config = parse(file, &text)?;
    let member = config.member(name).ok_or_else(|| {
        let message = format!(
            "{} has no member {name}; hsmux token list shows all",
            file.display()
        );
        Error::request(Kind::Invalid, message)
    })?;
    let left = without(&text, member.line);
    let others = config.tokens.iter().filter(|other| other.name != name);
    let expected = Config {
        tokens: others.cloned().collect(),
        ..config.clone()
    };
    if !same(parse(file, &left)?, expected) {
        let message = format!(
            "{}:{}: the section of {name} is mixed with others; take it out by hand",
            file.display(),
            member.line
        );
        return Err(Error::request(Kind::Invalid, message));
    }
    replace(file, &left)
}

/// The text without the section that starts on this line.
fn without(text: &str, line: usize) -> String {
    let length_of = |lines: usize| -> usize {
        let lines = text.split_inclusive('\n').take(lines);
        lines.map(str::len).sum()
    };
    let (start, after) = (length_of(line - 1), length_of(line));
    let next = sections(text).into_iter().filter(|at| *at >= after).min();
    let next = next.unwrap_or(text.len());
    // Comments above the next section belong to that section.
    let about_next = |line: &&str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let lines = text[start..next].split_inclusive('\n').rev();
    let gap: usize = lines.take_while(about_next).map(str::len).sum();
    let (above, below) = (&text[..start], &text[next - gap..]);
    if below.trim().is_empty() {
        return format!("{}\n", above.trim_end());
    }
    [above, below].concat()
}

/// Where the file's sections begin, in bytes.
fn sections(text: &str) -> Vec<usize> {
    let (document, _) = DeTable::parse_recoverable(text);
    let start = |value: &Spanned<DeValue<'_>>| value.span().start;
    let values = document.get_ref().values();
    let starts = values.flat_map(|value| match value.get_ref() {
        DeValue::Array(items) => items.iter().map(start).collect(),
        _ => vec![start(value)],
    });
    starts.collect()
}

/// True if they are equal, but for the order in the file.
fn same(mut one: Config, mut other: Config) -> bool {
    // The default is the number of members.
    one.pool.replicas = other.pool.replicas;
    one.text.clone_from(&other.text);
    for member in one.tokens.iter_mut().chain(&mut other.tokens) {
        member.line = 0;
    }
    one == other
}

fn parse(file: &Path, text: &str) -> Result<Config> {
    hsmux_config::parse(file, text).map_err(|mistakes| {
        let lines: Vec<_> = mistakes.iter().map(Mistake::to_string).collect();
        Error::request(Kind::Environment, lines.join("\n"))
    })
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|e| failed(file, &e))
}

/// Waits until no other command changes the file.
fn locked(file: &Path) -> Result<FileLock> {
    let file = fs::canonicalize(file).map_err(|e| failed(file, &e))?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    FileLock::take_folder(folder, PATIENCE).map_err(|e| failed(&file, &io::Error::other(e)))
}

/// Replaces the file with a valid text, atomically, with the same owner and permissions.
fn replace(file: &Path, text: &str) -> Result<()> {
    parse(file, text)?;
    let file = fs::canonicalize(file).map_err(|e| failed(file, &e))?;
    hsmux_state::replace_like(&file, text.as_bytes(), &file).map_err(|e| failed(&file, &e))
}

fn quoted(text: &str) -> String {
    // JSON's strings are TOML's basic strings.
    serde_json::Value::from(text).to_string()
}

fn absolute(path: &Path) -> Result<String> {
    let path = std::path::absolute(path).map_err(|e| failed(path, &e))?;
    Ok(path.display().to_string())
}

fn failed(file: &Path, error: &io::Error) -> Error {
    Error::request(Kind::Environment, format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use std::os::unix::fs::chown;

    use super::*;

    const FIRST: &str = "[pool]\nlabel = \"web\"\n\n# the first\n[[token]]\nmodule = \"a.so\"\n\
                         uri = \"pkcs11:token=a\"\n";

    fn file_of(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hsmux.toml");
        fs::write(&file, text).unwrap();
        (folder, file)
    }

    fn member(name: &str) -> NewMember {
        NewMember {
            name: name.into(),
            module: "/b.so".into(),
            uri: format!("pkcs11:serial={}", name.len()).parse().unwrap(),
            pin_file: Some("/b.pin".into()),
        }
    }

    #[allow(clippy::unnecessary_wraps)] // as `add` asks for it
    fn served() -> Result<()> {
        Ok(())
    }

    #[test]
    fn added_and_forgotten_leaves_the_file_as_it_was() {
        let (_folder, file) = file_of(FIRST);
        let second = member("b \"2\"");
        add(&file, &second, served).unwrap();
        let config = hsmux_config::load(&file).unwrap();
        assert_eq!(config.member("b \"2\"").unwrap().uri, second.uri);
        let again = add(&file, &second, served).unwrap_err();
        assert!(again.to_string().contains("stands already"), "{again}");

        forget(&file, "a").unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("# the first"), "{text}");
        assert!(!text.contains("a.so"), "{text}");
        add(&file, &member("c"), served).unwrap();
        forget(&file, "c").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert!(forget(&file, "c").is_err());
    }

    #[test]
    fn a_member_that_is_refused_does_not_stay() {
        let (_folder, file) = file_of(FIRST);
        let refuse = || Err::<(), _>(Error::request(Kind::Invalid, "not this one"));
        for _ in 0..2 {
            let error = add(&file, &member("b"), refuse).unwrap_err();
            assert!(error.to_string().contains("not this one"), "{error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), FIRST);
        }
    }

    /// TOML lets headers be indented, tables have tables, and values have brackets.
    #[test]
    fn the_sections_after_a_member_stay() {
        let pool = "[pool]\nlabel = \"web\"\n";
        let first = "[[token]]\nmodule = \"a.so\"\nuri = \"pkcs11:token=a\"\n";
        let own = "pin = { file = \"\"\"\n[audit]\"\"\" }\n  [token.env]\n  LEVEL = \"1\"\n";
        let next = "\n  # of the next\n  [[token]]\n  module = \"b.so\"\n  uri = \"pkcs11:token=b\"\n\
                    \n  [audit]\n  file = \"audit.log\"\n";
        let (_folder, file) = file_of(&[pool, first, own, next].concat());
        forget(&file, "a").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), [pool, next].concat());
        let config = hsmux_config::load(&file).unwrap();
        assert!(config.audit.file.ends_with("audit.log") && config.member("b").is_some());
    }

    #[test]
    fn a_member_in_pieces_is_left_to_people() {
        let text = "[pool]\nlabel = \"web\"\n[[token]]\nmodule = \"a.so\"\nuri = \"pkcs11:token=a\"\n\
                    [[token]]\nmodule = \"b.so\"\nuri = \"pkcs11:token=b\"\n\
                    [audit]\n[token.env]\nLEVEL = \"1\"\n";
        let (_folder, file) = file_of(text);
        let error = forget(&file, "b").unwrap_err();
        assert!(error.to_string().contains(":6: "), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }

    /// The daemon's file stays the daemon's when root edits it.
    #[test]
    fn the_owner_stays() {
        let (_folder, file) = file_of(FIRST);
        let other = rustix::process::geteuid().is_root().then_some(65534);
        chown(&file, other, other).unwrap();
        let owner = |file| fs::metadata(file).map(|m| (m.uid(), m.gid(), m.mode()));
        let before = owner(&file).unwrap();
        add(&file, &member("b"), served).unwrap();
        assert_eq!(owner(&file).unwrap(), before);
    }
}
