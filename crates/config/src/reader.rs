//! Typed values from TOML. Mistakes are collected; none ends the reading.

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hsmux_token::Uri;
use hsmux_token::permissions::SecretReaders;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::duration;
use super::schema::{ConfigKey, SECTIONS, Section};
use super::{Mistake, PinSource, Severity, User};

/// The file's text, and its mistakes so far.
pub struct Source<'a> {
    pub file: &'a Path,
    pub text: &'a str,
    pub mistakes: Vec<Mistake>,
    /// Files, users and groups that it names, each with its line. [`check`](crate::check) looks at them later.
    pub named: Vec<(usize, ExternalReference)>,
}

/// A file, user or group that the configuration refers to.
#[derive(Clone, Debug)]
pub enum ExternalReference {
    Module(PathBuf),
    /// A file that is read.
    File(PathBuf),
    /// A file that decides who is trusted, and the section of the service that reads it: no other user may change it.
    Trust(&'static str, PathBuf),
    /// A file that is read only if the other one exists.
    Beside(Box<ExternalReference>, PathBuf),
    /// A file with a secret, and its permitted readers.
    Secret(PathBuf, SecretReaders, Option<u32>),
    /// A file whose absence is no error for the rest.
    Later(PathBuf),
    /// A file that is made if it is not there, and appended to.
    AppendedFile(PathBuf),
    /// A folder whose files are served.
    Served(PathBuf),
    /// A certificate that an ACME client may create later.
    Awaited(PathBuf),
    Pin(PinSource),
    User(&'static str, User),
    Group(String),
    Socket(PathBuf),
    /// A folder that the daemon creates, and its purpose.
    Folder(&'static str, PathBuf),
    /// A file of a `[[site]]`: without it the rest works.
    OfSite(Box<ExternalReference>),
}

impl<'a> Source<'a> {
    pub fn new(file: &'a Path, text: &'a str) -> Self {
        Self {
            file,
            text,
            mistakes: Vec::new(),
            named: Vec::new(),
        }
    }

    pub fn line(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        before.split(|byte| *byte == b'\n').count()
    }

    pub fn names(&mut self, span: &Range<usize>, named: ExternalReference) {
        let line = self.line(span.start);
        self.named.push((line, named));
    }

    pub fn error(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.mistakes.push(Mistake {
            file: self.file.to_owned(),
            line: self.line(span.start),
            severity: Severity::Error,
            message: message.into(),
        });
    }

    /// Resolves a path relative to the file's folder.
    pub fn path(&self, text: &str) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(text)
    }

    /// Reports keys of a table that the section does not have.
    pub fn unknown<'k>(
        &mut self,
        table: &DeTable<'_>,
        section: &str,
        known: &(impl Iterator<Item = &'k str> + Clone),
    ) {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if known.clone().any(|known| known == name) {
                continue;
            }
            let (kind, hint) = match owning_section(name) {
                Some(hint) => ("key", hint),
                None if is_section(value.get_ref()) => ("section", suggestion(name, known.clone())),
                None => ("key", suggestion(name, known.clone())),
            };
            self.error(
                key.span(),
                format!("unknown {kind} {name:?} in {section}{hint}"),
            );
        }
    }
}

/// Returns `; it belongs in [pool]` if another section has such a key.
fn owning_section(name: &str) -> Option<String> {
    let has = |section: &&Section| section.keys.iter().any(|key| key.name == name);
    let sections: Vec<_> = SECTIONS.iter().filter(has).map(Section::title).collect();
    (!sections.is_empty()).then(|| format!("; it belongs in {}", sections.join(" or ")))
}

fn is_section(value: &DeValue<'_>) -> bool {
    let first = value.as_array().and_then(|array| array.iter().next());
    value.is_table() || first.is_some_and(|first| first.get_ref().is_table())
}

/// Returns `; did you mean "label"?`, or lists all names.
/// Long names are not compared, because time and memory grow with their length.
pub fn suggestion<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    const LONGEST_SLIP: usize = 64;
    let near = known
        .clone()
        .filter(|_| name.len() <= LONGEST_SLIP)
        .map(|known| (strsim::damerau_levenshtein(known, name), known))
        .min();
    match near {
        Some((distance, known)) if distance <= 2 || distance * 3 <= name.len() => {
            format!("; did you mean {known:?}?")
        }
        _ => format!("; there are: {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// One section of the file. Each `read` of a key reports its mistake once.
pub struct Fields<'s, 'a, 'd> {
    pub source: &'s mut Source<'a>,
    section: &'static Section,
    table: Option<&'d DeTable<'d>>,
    /// Its position in the file.
    pub span: Range<usize>,
}

impl<'s, 'a, 'd> Fields<'s, 'a, 'd> {
    pub fn new(
        source: &'s mut Source<'a>,
        section: &'static Section,
        table: Option<&'d DeTable<'d>>,
        span: Range<usize>,
    ) -> Self {
        if let Some(table) = table {
            source.unknown(
                table,
                &section.title(),
                &section.keys.iter().map(|key| key.name),
            );
        }
        Self {
            source,
            section,
            table,
            span,
        }
    }

    /// Reports a missing required key.
    pub fn missing(&mut self, name: &str) {
        let section = self.section;
        let example = self.key(name).map_or("", |key| key.example);
        let message = format!(
            "{} needs {name}; for example {name} = {example}",
            section.title()
        );
        self.source.error(self.span.clone(), message);
    }

    /// Records a file that the value of a key names.
    pub fn names(&mut self, name: &str, named: ExternalReference) {
        let span = self.span_of(name);
        self.source.names(&span, named);
    }

    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The position of a key's value, or else of the section.
    pub fn span_of(&self, name: &str) -> Range<usize> {
        self.value(name).map_or(self.span.clone(), Spanned::span)
    }

    fn value(&self, name: &str) -> Option<&'d Spanned<DeValue<'d>>> {
        debug_assert!(self.key(name).is_some(), "{name} is not in the schema");
        self.table?.get(name)
    }

    fn key(&self, name: &str) -> Option<&'static ConfigKey> {
        self.section.keys.iter().find(|key| key.name == name)
    }

    /// Reads a key; `None` if it is absent or wrong. A wrong value is reported.
    pub fn read<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&DeValue<'d>) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.value(name)?;
        match read(value.get_ref()) {
            Ok(value) => Some(value),
            Err(why) => {
                let example = self.key(name).map_or("", |key| key.example);
                // If the error suggests no correction, it shows the example.
                let message = if why.ends_with('?') {
                    format!("{name}: {why}")
                } else {
                    format!("{name}: {why}; for example {name} = {example}")
                };
                self.source.error(value.span(), message);
                None
            }
        }
    }

    pub fn text(&mut self, name: &str) -> Option<String> {
        self.read(name, |value| text(value).map(str::to_owned))
    }

    pub fn flag(&mut self, name: &str) -> Option<bool> {
        self.read(name, |value| {
            value.as_bool().ok_or_else(|| wrong("true or false", value))
        })
    }

    pub fn number(&mut self, name: &str, range: RangeInclusive<u64>) -> Option<u64> {
        self.read(name, |value| {
            let number = integer(value).ok_or_else(|| wrong("a number", value))?;
            if range.contains(&number) {
                Ok(number)
            } else {
                Err(format!(
                    "{number} is not from {} to {}",
                    range.start(),
                    range.end()
                ))
            }
        })
    }

    pub fn duration(&mut self, name: &str) -> Option<Duration> {
        self.read(name, |value| duration::read(text(value)?))
    }

    /// Reads a duration with a range of its own.
    pub fn duration_from(&mut self, name: &str, least: &str, most: &str) -> Option<Duration> {
        self.read(name, |value| duration::within(text(value)?, least, most))
    }

    pub fn path(&mut self, name: &str) -> Option<PathBuf> {
        let text = self.read(name, |value| match text(value)? {
            "" => Err("the path is empty".into()),
            text => Ok(text.to_owned()),
        })?;
        Some(self.source.path(&text))
    }

    /// Reads the path of a file that must exist.
    pub fn file(&mut self, name: &str) -> Option<PathBuf> {
        let path = self.path(name)?;
        self.names(name, ExternalReference::File(path.clone()));
        Some(path)
    }

    /// Reads the path of a file that must exist, and that decides who is trusted.
    pub fn trust_file(&mut self, service: &'static str, name: &str) -> Option<PathBuf> {
        let path = self.path(name)?;
        self.names(name, ExternalReference::Trust(service, path.clone()));
        Some(path)
    }

    /// Reads the path of a file with a secret, which must exist. It is for this user, or else for the daemon's.
    pub fn secret_file_of(
        &mut self,
        name: &str,
        readers: SecretReaders,
        user: Option<u32>,
    ) -> Option<PathBuf> {
        let path = self.path(name)?;
        self.names(name, ExternalReference::Secret(path.clone(), readers, user));
        Some(path)
    }

    pub fn uri(&mut self, name: &str) -> Option<Uri> {
        self.read(name, uri)
    }

    pub fn list<T>(
        &mut self,
        name: &str,
        each: impl Fn(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        self.read(name, |value| {
            let array = value.as_array().ok_or_else(|| wrong("a list", value))?;
            array.iter().map(|item| each(item.get_ref())).collect()
        })
    }

    /// Reads one of several words.
    pub fn choice<T: Copy>(&mut self, name: &str, words: &[(&'static str, T)]) -> Option<T> {
        self.read(name, |value| {
            let text = text(value)?;
            let found = words.iter().find(|(word, _)| *word == text);
            found.map(|(_, value)| *value).ok_or_else(|| {
                let hint = suggestion(text, words.iter().map(|(word, _)| *word));
                format!("{text:?} is unknown{hint}")
            })
        })
    }

    /// Reads octal permissions.
    pub fn mode(&mut self, name: &str) -> Option<u32> {
        self.read(name, |value| {
            let text = value
                .as_str()
                .ok_or_else(|| wrong("octal permissions in quotes", value))?;
            match u32::from_str_radix(text, 8) {
                Ok(mode) if mode <= 0o777 => Ok(mode),
                _ => Err(format!("{text:?} is not octal permissions")),
            }
        })
    }

    pub fn pin(&mut self, name: &str) -> Option<PinSource> {
        let (kind, locator) = self.read(name, pin)?;
        let source = match kind {
            "file" => PinSource::File(self.source.path(&locator)),
            "env" => PinSource::Env(locator),
            _ => PinSource::Credential(locator),
        };
        self.names(name, ExternalReference::Pin(source.clone()));
        Some(source)
    }

    pub fn env(&mut self, name: &str) -> Option<Vec<(String, String)>> {
        self.read(name, |value| {
            let table = value.as_table().ok_or_else(|| wrong("a table", value))?;
            let pair = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let key: &std::borrow::Cow<'_, str> = key.get_ref();
                Ok((key.to_string(), text(value.get_ref())?.to_owned()))
            };
            table.iter().map(pair).collect()
        })
    }
}

pub fn text<'v>(value: &'v DeValue<'_>) -> Result<&'v str, String> {
    value.as_str().ok_or_else(|| wrong("text in quotes", value))
}

pub fn integer(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

pub fn uri(value: &DeValue<'_>) -> Result<Uri, String> {
    text(value)?.parse::<Uri>().map_err(|e| e.to_string())
}

fn wrong(wanted: &str, found: &DeValue<'_>) -> String {
    format!("expected {wanted}, found {}", found.type_str())
}

fn pin(value: &DeValue<'_>) -> Result<(&'static str, String), String> {
    let shape =
        "a PIN is named by its place: { file = ... }, { env = ... } or { credential = ... }";
    let table = value.as_table().ok_or(shape)?;
    let mut pairs = table.iter();
    let (Some((key, locator)), None) = (pairs.next(), pairs.next()) else {
        return Err(shape.into());
    };
    let locator = text(locator.get_ref())?;
    let key = key.get_ref().as_ref();
    let kind = ["file", "env", "credential"]
        .into_iter()
        .find(|kind| *kind == key);
    match kind {
        Some(_) if locator.is_empty() => Err(shape.into()),
        Some(kind) => Ok((kind, locator.to_owned())),
        None => Err(format!("{key:?} is unknown; {shape}")),
    }
}
