//! Heat over MPI in the demo: where its programs stand, and whether they can be run. They are made by `cargo xtask dist`, with the MPI
//! libraries that they need. Called by the demo; starts nothing but a look at Python's packages.

use super::stage::{Face, Stage};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub const PYTHON: &str = "python3";

fn tree(pulc: &Path) -> PathBuf {
    pulc.parent().and_then(Path::parent).unwrap_or(Path::new("")).to_owned()
}

/// examples/mpi/heat.c, compiled.
pub fn program(pulc: &Path) -> PathBuf {
    tree(pulc).join("bin/heat-mpi")
}

/// examples/mpi/heat.py
pub fn script(pulc: &Path) -> PathBuf {
    tree(pulc).join("share/pulc/heat.py")
}

/// The runs that are possible here, and a word about those that are not.
pub struct Offer {
    /// On the demo's plate.
    pub stages: Vec<Stage>,
    /// On the small one: NumPy needs a minute for the other.
    pub small: Vec<Stage>,
    pub missing: Option<&'static str>,
}

pub fn offer(pulc: &Path, ranks: u32) -> Offer {
    let stage = |face, name, title| Stage { face, name, title, ranks, nodes: 1 };
    if !program(pulc).exists() {
        let missing =
            Some("MPI          `cargo xtask dist`, then `dist/bin/pulc demo`: also heat over MPI, in C and Python");
        return Offer { stages: Vec::new(), small: Vec::new(), missing };
    }
    let stages = vec![stage(Face::MpiC, "MPI", "the same over MPI, a program in C")];
    let mut look = Command::new(PYTHON);
    // Found, not imported: that would begin MPI.
    look.args(["-c", "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('mpi4py', 'numpy'))))"]);
    let found = look.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        let missing = Some("Python       `pip install mpi4py numpy`, then the demo runs heat over MPI in Python, too");
        return Offer { stages, small: Vec::new(), missing };
    }
    let small = vec![
        stage(Face::Ports, "small", "a small plate, on ports"),
        stage(Face::MpiPython, "Python", "the small plate over MPI, a program in Python"),
    ];
    Offer { stages, small, missing: None }
}
