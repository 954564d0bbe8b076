//! The child process of a part of the measurement: it reads commands from its standard input and ends with it.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use hsmux_token::{Error, Kind, Result, Token};
use serde::Serialize;
use serde_json::Value;

use super::load_during::load_during;
use super::store::LABEL;
use crate::cipher::Cipher;

/// The first argument of hsmux-lab for such a process.
pub const COMMAND: &str = "bench-part";

/// The label of all keys except the one in use.
const OTHERS: &str = "others";

/// Adds and removes keys.
pub trait Keyring: Send {
    /// Creates a key with this label.
    fn add(&mut self, label: &str) -> Result<()>;

    /// Removes the key that was created last.
    fn remove(&mut self) -> Result<()>;
}

/// A part of the measurement.
pub enum Part {
    /// Uses the key without hsmux.
    Bare(Arc<dyn Token>),
    /// Creates the key in use, and adds and removes others.
    Keys(Box<dyn Keyring>),
}

impl Part {
    /// Executes commands until the input ends.
    pub fn serve(mut self, input: impl BufRead, mut output: impl Write) -> Result<()> {
        let mut lines = input.lines();
        let (mut count, mut prepared) = (0, None);
        let ready = match &mut self {
            Self::Keys(keys) => keys.add(LABEL),
            Self::Bare(_) => Ok(()),
        };
        answer(&mut output, ready)?;
        while let Some(line) = next(&mut lines)? {
            let words: Vec<&str> = line.split(' ').collect();
            let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
            match (&mut self, words[0], &numbers[..]) {
                (Self::Bare(token), "load", &[callers, payload]) => {
                    let cipher = prepare(&mut prepared, token, callers, payload);
                    let mut wait = || {
                        answer(&mut output, Ok(()))?;
                        next(&mut lines).map(drop)
                    };
                    let done = cipher.and_then(|cipher| {
                        load_during(&mut wait, |until, control| {
                            Ok(cipher.measure(until, control))
                        })
                    });
                    answer(&mut output, done)?;
                }
                (Self::Keys(keys), "keys", &[wanted]) => {
                    let done = bring_to(&mut **keys, &mut count, wanted);
                    answer(&mut output, done)?;
                }
                (Self::Keys(keys), "change", &[pause]) => {
                    answer(&mut output, Ok(()))?;
                    let pause = Duration::from_millis(pause as u64);
                    let mut wait = || next(&mut lines).map(drop);
                    let done = change(&mut **keys, pause, &mut wait);
                    answer(&mut output, done)?;
                }
                _ => return Err(Error::request(Kind::Protocol, line)),
            }
        }
        Ok(())
    }
}

fn next(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> Result<Option<String>> {
    let line = lines.next().transpose();
    line.map_err(|e| Error::pool(Kind::Lost, format!("standard input: {e}")))
}

/// Writes an answer as a line.
fn answer<T: Serialize>(output: &mut impl Write, done: Result<T>) -> Result<()> {
    let line = done.map_err(|e| e.to_string());
    let line =
        serde_json::to_string(&line).unwrap_or_else(|e| Value::from(e.to_string()).to_string());
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .map_err(|e| Error::pool(Kind::Lost, format!("standard output: {e}")))
}

/// The operations of the callers, prepared once, since the key is searched among all.
fn prepare<'a>(
    prepared: &'a mut Option<((usize, usize), Cipher)>,
    token: &Arc<dyn Token>,
    callers: usize,
    payload: usize,
) -> Result<&'a Cipher> {
    let asked = (callers, payload);
    let known = prepared.take().filter(|(of, _)| *of == asked);
    let cipher = match known {
        Some((_, cipher)) => cipher,
        None => Cipher::new(Arc::clone(token), LABEL, callers, payload)?,
    };
    Ok(&prepared.insert((asked, cipher)).1)
}

/// Changes keys until `wait` returns; returns the number of changes.
fn change(
    keys: &mut dyn Keyring,
    pause: Duration,
    wait: &mut dyn FnMut() -> Result<()>,
) -> Result<u64> {
    let (stop, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let changing = scope.spawn(|| {
            while !stop.load(Relaxed) {
                keys.add(OTHERS)?;
                thread::sleep(pause);
                keys.remove()?;
                thread::sleep(pause);
                changes.fetch_add(2, Relaxed);
            }
            Ok(())
        });
        let done = wait();
        stop.store(true, Relaxed);
        let ended = changing.join();
        ended.unwrap_or_else(|_| Err(Error::pool(Kind::Lost, "the changes have panicked")))?;
        done
    })?;
    Ok(changes.into_inner())
}

fn bring_to(keys: &mut dyn Keyring, count: &mut usize, wanted: usize) -> Result<()> {
    while *count < wanted {
        keys.add(OTHERS)?;
        *count += 1;
    }
    while *count > wanted {
        keys.remove()?;
        *count -= 1;
    }
    Ok(())
}
