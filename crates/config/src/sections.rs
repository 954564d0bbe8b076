//! Sections of the file, single and repeated.

use std::collections::HashMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;

use super::reader::{Fields, Source};
use super::schema::section;

/// A value, and its position.
pub type WithSpan<T> = (T, Range<usize>);

/// Reads a required key.
pub fn required<T>(
    fields: &mut Fields<'_, '_, '_>,
    name: &str,
    read: impl FnOnce(&mut Fields<'_, '_, '_>) -> Option<T>,
) -> Option<T> {
    if !fields.has(name) {
        fields.missing(name);
    }
    read(fields)
}

/// Reads a section that occurs at most once; an absent one reads as empty.
pub fn one<T>(
    source: &mut Source<'_>,
    document: &DeTable<'_>,
    name: &str,
    read: impl FnOnce(&mut Fields<'_, '_, '_>) -> T,
) -> T {
    let value = document.get(name);
    let span = value.map_or(0..0, Spanned::span);
    let table = value.and_then(|value| value.get_ref().as_table());
    if value.is_some() && table.is_none() {
        source.error(span.clone(), format!("{name} is a section: [{name}]"));
    }
    read(&mut Fields::new(source, section(name), table, span))
}

/// Reads each occurrence of a repeated section.
pub fn many<T>(
    source: &mut Source<'_>,
    document: &DeTable<'_>,
    name: &str,
    mut read: impl FnMut(&mut Fields<'_, '_, '_>) -> Option<T>,
) -> Vec<T> {
    let Some(value) = document.get(name) else {
        return Vec::new();
    };
    let tables = value.get_ref().as_array().into_iter().flatten();
    let tables: Vec<_> = tables
        .filter_map(|item| Some((item.get_ref().as_table()?, item.span())))
        .collect();
    if tables.is_empty() {
        let message = format!("{name} may stand many times, in double brackets: [[{name}]]");
        source.error(value.span(), message);
    }
    tables
        .into_iter()
        .filter_map(|(table, span)| {
            read(&mut Fields::new(source, section(name), Some(table), span))
        })
        .collect()
}

/// Reports duplicates.
pub fn unique<T>(
    source: &mut Source<'_>,
    items: &[T],
    what: &str,
    key: impl Fn(&T) -> WithSpan<String>,
) {
    let mut seen = HashMap::new();
    for item in items {
        let (key, span) = key(item);
        let line = source.line(span.start);
        if let Some(first) = seen.insert(key.clone(), line) {
            source.error(
                span,
                format!("the {what} {key} stands already in line {first}"),
            );
        }
    }
}
