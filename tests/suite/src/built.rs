use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Programs that the workspace builds and tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The program for production hosts. [`Program::Lab`] is beside it.
    Hsmux,
    /// The program behind `hsmux bench` and `hsmux vcard`.
    Lab,
    /// The PKCS#11 module.
    Module,
    /// The stand-in for a vendor's module.
    StandIn,
}

impl Program {
    fn file(self) -> &'static str {
        match self {
            Self::Hsmux => "hsmux",
            Self::Lab => "hsmux-lab",
            Self::Module => "libhsmux_pkcs11.so",
            Self::StandIn => "libhsmux_standin.so",
        }
    }
}

/// The path of a program of the workspace, built if necessary. `make test` builds first and sets `HSMUX_BUILT`;
/// otherwise each test binary runs cargo once, for the whole workspace, so that nothing is built twice.
pub fn built(program: Program) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        std::env::var_os("HSMUX_BUILT").map_or_else(build_workspace, PathBuf::from)
    });
    let path = |program: Program| folder.join(program.file());
    // hsmux starts hsmux-lab, which tests never request directly.
    for needed in [program, Program::Lab] {
        let path = path(needed);
        assert!(path.exists(), "{} is missing", path.display());
    }
    path(program)
}

/// Copies a program, with its mode, by cp. If this process wrote the copy, children of other tests could hold it open for
/// writing, and it could not be run (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").args([from, to]).status();
    assert!(
        status.expect("run cp").success(),
        "cp {} {}",
        from.display(),
        to.display()
    );
}

fn build_workspace() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("target/<profile>");
    let target = folder.parent().expect("target");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--workspace", "--quiet", "--target-dir"])
        .arg(target)
        .current_dir(source())
        .status()
        .expect("run cargo");
    assert!(status.success(), "the workspace does not build");
    folder.to_owned()
}

/// The root of the source tree.
pub fn source() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
