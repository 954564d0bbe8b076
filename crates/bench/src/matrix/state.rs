//! The results so far: runs of cells, in a file.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use hsmux_token::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::{Cell, CellRun};
use crate::record;

/// The version of the format; others are refused.
const FORM: &str = "hsmux-matrix/1";

/// The file's contents.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixState {
    form: String,
    /// Cells with at least one run, including those that the table no longer has.
    cells: Vec<CellRuns>,
}

/// The finished runs of a cell.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CellRuns {
    cell: Cell,
    runs: Vec<CellRun>,
}

impl MatrixState {
    /// Reads the file, unless it is missing or `restart` is set.
    pub fn open(path: &Path, restart: bool) -> Result<Self> {
        let empty = Self {
            form: FORM.to_owned(),
            cells: Vec::new(),
        };
        let text = match fs::read(path) {
            _ if restart => return Ok(empty),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(empty),
            read => read.map_err(|error| failed("read", path, &error))?,
        };
        let none = "this is no state of a matrix; name another file, or begin anew";
        let state: Self = serde_json::from_slice(&text).map_err(|e| failed(none, path, &e))?;
        if state.form != FORM {
            let form = format!("its form is {:?}, not {FORM:?}", state.form);
            return Err(failed(none, path, &form));
        }
        Ok(state)
    }

    /// The finished runs of a cell.
    pub fn runs(&self, cell: &Cell) -> &[CellRun] {
        let known = self.cells.iter().find(|known| known.cell == *cell);
        known.map_or(&[], |known| &known.runs)
    }

    /// Records a run.
    pub fn add(&mut self, cell: &Cell, run: CellRun, path: &Path) -> Result<()> {
        match self.cells.iter_mut().find(|known| known.cell == *cell) {
            Some(known) => known.runs.push(run),
            None => self.cells.push(CellRuns {
                cell: cell.clone(),
                runs: vec![run],
            }),
        }
        record::replace(path, self).map_err(|error| failed("write", path, &error))
    }
}

fn failed(what: &str, path: &Path, why: &dyn std::fmt::Display) -> Error {
    let message = format!("{}: {what}: {why}", path.display());
    Error::pool(Kind::Environment, message)
}
