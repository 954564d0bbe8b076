//! `--process`: processes in the report's CPU times and memory, besides those of the target that hsmux knows.

use std::convert::Infallible;
use std::str::FromStr;

use crate::exit::Exit;

/// A process by its id, or all with a name.
#[derive(Clone, Debug)]
pub enum ProcessArg {
    Id(u32),
    Name(String),
}

/// The maximum length of a process name in the kernel (proc(5), `comm`).
const LONGEST: usize = 15;

impl FromStr for ProcessArg {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let id = text.parse().map(Self::Id);
        Ok(id.unwrap_or_else(|_| Self::Name(text.to_owned())))
    }
}

/// Their current ids. A missing process is an error.
pub fn ids(processes: &[ProcessArg]) -> anyhow::Result<Vec<u32>> {
    let mut ids = Vec::new();
    for process in processes {
        let found = process.ids();
        if found.is_empty() {
            let what = match process {
                ProcessArg::Id(id) => format!("id {id}"),
                ProcessArg::Name(name) => format!("name {name:?}"),
            };
            let why = format!("--process: no process has the {what}; ps -e shows all");
            return Err(Exit::Usage.because(why));
        }
        ids.extend(found);
    }
    Ok(ids)
}

impl ProcessArg {
    fn ids(&self) -> Vec<u32> {
        let comm = |id: u32| std::fs::read_to_string(format!("/proc/{id}/comm")).ok();
        match self {
            Self::Id(id) => comm(*id).map(|_| *id).into_iter().collect(),
            Self::Name(name) => {
                let name = name.as_bytes();
                let name = &name[..name.len().min(LONGEST)];
                let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
                let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
                all.filter(|id| comm(*id).is_some_and(|comm| comm.trim_end().as_bytes() == name))
                    .collect()
            }
        }
    }
}
