//! The file of the table's cells.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hsmux_token::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::tls::{self, Extent, Offer, RequestPace, Trust};

/// The table.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Runs of each cell.
    pub best_of: usize,
    /// The cells, in the order of the file.
    pub cells: Vec<Cell>,
}

/// One cell: the system to start, and its load. Equal contents mean the same cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The kind of key, `rsa-2048`.
    pub key: String,
    /// Tokens; 0 for a key in a file.
    pub hsms: u32,
    /// The PKCS#11 module, or another holder of the key.
    pub module: String,
    /// The page by its name.
    pub page: String,
    /// Concurrent users.
    pub users: usize,
    /// The maximum thinking time, in seconds; 0 for a burst.
    pub think_s: f64,
    /// The published set-up for comparison.
    pub published: String,
    /// The shell command that starts the system.
    pub start: String,
    /// The shell command that stops it, if the end of `start` is not enough.
    pub stop: Option<String>,
    /// How long it may take until it answers.
    pub ready_s: f64,
    /// The page's address.
    pub url: String,
    /// Whether its resources are requested.
    pub follow: bool,
    /// The options of the client.
    pub client: ClientSettings,
    /// The folder of the file, for commands.
    pub folder: PathBuf,
}

/// Options of the client for all cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientSettings {
    time: String,
    timeout: String,
    warm_up: Option<String>,
    ca: Option<PathBuf>,
    insecure: bool,
    tls: Option<String>,
    groups: Option<String>,
    signatures: Option<String>,
    sni: Option<String>,
    resolve: Option<String>,
    resume: f64,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            time: "30s".into(),
            timeout: "30s".into(),
            warm_up: None,
            ca: None,
            insecure: false,
            tls: None,
            groups: None,
            signatures: None,
            sni: None,
            resolve: None,
            resume: 0.0,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    #[serde(default = "three")]
    best_of: usize,
    #[serde(default)]
    client: ClientSettings,
    pages: BTreeMap<String, PageSettings>,
    cells: Vec<CellSet>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageSettings {
    url: String,
    #[serde(default)]
    follow: bool,
}

/// All combinations of keys, numbers of tokens, modules, pages and loads.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellSet {
    key: Items<String>,
    hsms: Items<u32>,
    module: Items<String>,
    page: Items<String>,
    load: Items<LoadSettings>,
    start: String,
    stop: Option<String>,
    #[serde(default = "minute")]
    ready_within: String,
    #[serde(default = "web_cluster")]
    published: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadSettings {
    users: usize,
    /// The default is a burst.
    think: Option<String>,
}

/// One value or a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Items<T> {
    One(T),
    List(Vec<T>),
}

impl<T> Items<T> {
    fn all(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::List(list) => list,
        }
    }
}

fn three() -> usize {
    3
}

fn minute() -> String {
    "60s".into()
}

fn web_cluster() -> String {
    "web-cluster".into()
}

impl Plan {
    /// Reads the file, and checks that every cell can be measured.
    pub fn read(path: &Path) -> Result<Self> {
        let wrong = |why: &dyn std::fmt::Display| {
            Error::request(Kind::Invalid, format!("{}: {why}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
        let file: PlanFile = toml::from_str(&text).map_err(|e| wrong(&e))?;
        let folder = std::path::absolute(path).map_err(|e| wrong(&e))?;
        let folder = folder.parent().unwrap_or(Path::new("/"));
        let mut cells = Vec::new();
        for of in &file.cells {
            cells.extend(of.cells(&file, folder).map_err(|e| wrong(&e))?);
        }
        if cells.is_empty() || file.best_of == 0 {
            return Err(wrong(
                &"there is nothing to measure: no cells, or best_of = 0",
            ));
        }
        for cell in &cells {
            cell.options().map_err(|e| wrong(&e))?;
        }
        Ok(Self {
            best_of: file.best_of,
            cells,
        })
    }
}

impl CellSet {
    fn cells(&self, file: &PlanFile, folder: &Path) -> Result<Vec<Cell>> {
        let page = |name: &String| {
            let missing = || Error::request(Kind::Invalid, format!("there is no [pages.{name}]"));
            let page = file.pages.get(name).ok_or_else(missing)?;
            Ok((name.clone(), page.url.clone(), page.follow))
        };
        let load = |load: &LoadSettings| {
            let think_s = load.think.as_deref().map_or(Ok(0.0), seconds)?;
            Ok((load.users, think_s))
        };
        let pages: Vec<_> = self.page.all().iter().map(page).collect::<Result<_>>()?;
        let loads: Vec<_> = self.load.all().iter().map(load).collect::<Result<_>>()?;
        let one = Cell {
            key: String::new(),
            hsms: 0,
            module: String::new(),
            page: String::new(),
            users: 0,
            think_s: 0.0,
            published: self.published.clone(),
            start: self.start.clone(),
            stop: self.stop.clone(),
            ready_s: seconds(&self.ready_within)?,
            url: String::new(),
            follow: false,
            client: file.client.clone(),
            folder: folder.to_owned(),
        };
        let cells = spread(&[one], self.key.all(), |cell, key| cell.key.clone_from(key));
        let cells = spread(&cells, self.hsms.all(), |cell, hsms| cell.hsms = *hsms);
        let cells = spread(&cells, self.module.all(), |cell, module| {
            cell.module.clone_from(module);
        });
        let cells = spread(&cells, &pages, |cell, page| {
            (cell.page, cell.url, cell.follow) = page.clone();
        });
        // Loads vary fastest, so that a system serves several cells.
        Ok(spread(&cells, &loads, |cell, load| {
            (cell.users, cell.think_s) = *load;
        }))
    }
}

/// Combines each cell with each of the values.
fn spread<T>(cells: &[Cell], values: &[T], set: impl Fn(&mut Cell, &T)) -> Vec<Cell> {
    let mut spread = Vec::new();
    for cell in cells {
        for value in values {
            let mut cell = cell.clone();
            set(&mut cell, value);
            spread.push(cell);
        }
    }
    spread
}

impl Cell {
    /// The options of its measurement.
    pub fn options(&self) -> Result<tls::TlsOptions> {
        let client = &self.client;
        let trust = match &client.ca {
            Some(file) => Trust::Roots(self.folder.join(file)),
            None if client.insecure => Trust::Anybody,
            None => Trust::System,
        };
        let version = client.tls.as_deref().map(str::parse).transpose();
        let warm_up = client.warm_up.as_deref().map_or(Ok(0.0), seconds)?;
        Ok(tls::TlsOptions {
            users: self.users,
            pace: RequestPace::ThinkS(self.think_s),
            extent: Extent::Time(Duration::from_secs_f64(seconds(&client.time)?)),
            follow: self.follow,
            resume: client.resume,
            offer: Offer {
                version: version.map_err(|why: String| Error::request(Kind::Invalid, why))?,
                groups: client.groups.clone(),
                signatures: client.signatures.clone(),
            },
            trust,
            name: client.sni.clone(),
            connect: client.resolve.clone(),
            timeout: Duration::from_secs_f64(seconds(&client.timeout)?),
            warm_up: Duration::from_secs_f64(warm_up),
            ..tls::TlsOptions::new(self.url.clone())
        })
    }

    /// The duration of one run.
    pub fn seconds(&self) -> f64 {
        let part = |text: &str| seconds(text).unwrap_or_default();
        part(&self.client.time) + self.client.warm_up.as_deref().map_or(0.0, part)
    }
}

/// `30s`, `500ms`, `2m`.
fn seconds(text: &str) -> Result<f64> {
    let time = humantime::parse_duration(text);
    let time = time.map_err(|e| Error::request(Kind::Invalid, format!("{text:?}: {e}")))?;
    Ok(time.as_secs_f64())
}
