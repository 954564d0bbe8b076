//! The executable of worker processes, for a pool that is embedded in any program.

use std::path::{Path, PathBuf};

use hsmux_config::Config;
use hsmux_token::Result;

const NAME: &str = "hsmux";

/// The path of `hsmux` relative to the folder of this library: built, in /usr/lib, in /usr/lib/TRIPLET.
const PLACES: [&str; 3] = [".", "../bin", "../../bin"];

/// The path in the configuration, else the `hsmux` installed with this library, else that of the PATH.
pub fn program(config: &Config) -> Result<PathBuf> {
    let configured = config.worker_program()?;
    let found = configured.or_else(installed);
    Ok(found.unwrap_or_else(|| NAME.into()))
}

fn installed() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let library = mapped_at(&maps, program as *const () as usize)?;
    let folder = library.parent()?;
    let places = PLACES.iter().map(|place| folder.join(place).join(NAME));
    places.into_iter().find(|place| place.is_file())
}

/// The file that is mapped at an address (proc(5), /proc/pid/maps).
fn mapped_at(maps: &str, address: usize) -> Option<&Path> {
    let of_line = |line| -> Option<&Path> {
        let (range, rest) = str::split_once(line, ' ')?;
        let (start, end) = range.split_once('-')?;
        let bound = |hex| usize::from_str_radix(hex, 16).ok();
        let within = (bound(start)?..bound(end)?).contains(&address);
        let path = &rest[rest.find('/')?..];
        within.then_some(Path::new(path))
    };
    maps.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
        5000-6000 r--p 00000000 08:01 42    /usr/bin/program\n\
        7f00-7f80 rw-p 00000000 00:00 0 \n\
        8000-9000 r-xp 00001000 08:01 43    /usr/lib/with space/lib.so\n";

    #[test]
    fn a_mapping_is_found_by_an_address_in_it() {
        let found = |address| mapped_at(MAPS, address);
        assert_eq!(found(0x8fff), Some(Path::new("/usr/lib/with space/lib.so")));
        assert_eq!(found(0x5000), Some(Path::new("/usr/bin/program")));
        assert_eq!(found(0x9000), None);
        assert_eq!(found(0x7f10), None, "of no file");
    }

    #[test]
    fn this_code_is_of_a_file() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let found = mapped_at(&maps, program as *const () as usize).unwrap();
        assert_eq!(found, std::env::current_exe().unwrap());
    }
}
