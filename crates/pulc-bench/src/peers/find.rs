//! The MPIs on this machine: launchers in the search path under their usual names, folders that the user names, and PULC itself. What
//! each is, it says itself; how its programs are compiled and started is known for MPICH, Intel MPI and Open MPI.

use crate::Error;
use crate::job::output;
use pulc_base::clock::Nanos;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Names under which distributions install launchers, each with the compiler of the same MPI.
const USUAL: [(&str, &str); 4] = [
    ("mpiexec.mpich", "mpicc.mpich"),
    ("mpiexec.openmpi", "mpicc.openmpi"),
    ("mpiexec.hydra", "mpicc"),
    ("mpiexec", "mpicc"),
];
/// Launchers in a folder of its own.
const LAUNCHERS: [&str; 2] = ["mpiexec.hydra", "mpiexec"];
const LIMIT: Nanos = Nanos::from_ms(30_000);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Pulc,
    Mpich,
    Intel,
    OpenMpi4,
    OpenMpi5,
}

/// One MPI.
pub struct Mpi {
    pub name: String,
    /// What its launcher says.
    pub version: String,
    pub kind: Kind,
    launcher: PathBuf,
    compiler: Option<PathBuf>,
    /// Where it is installed, for those that need to be told.
    folder: Option<PathBuf>,
}

impl Mpi {
    /// What is installed in `folder`.
    pub fn in_folder(folder: &Path, name: Option<&str>) -> Result<Mpi, Error> {
        let launcher = LAUNCHERS.iter().map(|launcher| folder.join("bin").join(launcher)).find(|path| path.exists());
        let launcher = launcher.ok_or_else(|| Error::Program {
            program: folder.display().to_string(),
            text: "there is no bin/mpiexec in this folder".into(),
        })?;
        let compiler = Some(folder.join("bin/mpicc")).filter(|path| path.exists());
        let mut mpi = Mpi::of(launcher, compiler, Some(folder.to_owned()))?;
        if let Some(name) = name {
            mpi.name = name.to_owned();
        }
        Ok(mpi)
    }

    fn of(launcher: PathBuf, compiler: Option<PathBuf>, folder: Option<PathBuf>) -> Result<Mpi, Error> {
        let text = output(&[launcher.clone().into(), "--version".into()], LIMIT)?;
        let (kind, version) =
            judge(&text).ok_or_else(|| Error::Nonsense(text.lines().next().unwrap_or("").to_owned()))?;
        let name = match kind {
            Kind::Pulc => "pulc",
            Kind::Mpich => "mpich",
            Kind::Intel => "intel",
            Kind::OpenMpi4 | Kind::OpenMpi5 => "openmpi",
        };
        let name = match version.split('.').next().filter(|major| kind != Kind::Pulc && !major.is_empty()) {
            Some(major) if kind != Kind::Intel => format!("{name}{major}"),
            _ => name.to_owned(),
        };
        Ok(Mpi { name, version, kind, launcher, compiler, folder })
    }

    /// Compiles a C program.
    pub fn compile(&self, source: &Path, program: &Path) -> Result<(), Error> {
        let mut words: Vec<OsString> = match (&self.compiler, &self.folder) {
            // The wrappers of Intel's packages name compilers that need not be there.
            (Some(compiler), _) if self.kind != Kind::Intel => vec![compiler.into()],
            (_, Some(folder)) => {
                let lib = folder.join("lib");
                let joined = |front: &str, path: &Path| {
                    let mut word = OsString::from(front);
                    word.push(path);
                    word
                };
                vec![
                    "cc".into(),
                    joined("-I", &folder.join("include")),
                    joined("-L", &lib),
                    joined("-Wl,-rpath,", &lib),
                ]
            }
            (Some(compiler), None) => vec![compiler.into()],
            (None, None) => vec!["mpicc".into()],
        };
        words.extend([OsString::from("-O2"), "-o".into(), program.into(), source.into()]);
        if self.kind == Kind::Intel && self.folder.is_some() {
            words.push("-lmpi".into());
        }
        output(&words, LIMIT).map(drop)
    }

    pub fn launcher(&self) -> &Path {
        &self.launcher
    }

    /// The words that start `ranks` processes of a program here.
    pub fn launch(&self, ranks: u32, program: &Path, words: &[&str]) -> Vec<OsString> {
        self.launch_with(&[], ranks, program, words)
    }

    /// The same with more options of its launcher.
    pub fn launch_with(&self, options: &[&str], ranks: u32, program: &Path, words: &[&str]) -> Vec<OsString> {
        let mut all: Vec<OsString> = vec!["env".into()];
        all.extend(self.environment());
        all.push((&self.launcher).into());
        match self.kind {
            Kind::OpenMpi4 => all.extend(["--oversubscribe", "--bind-to", "none"].map(OsString::from)),
            Kind::OpenMpi5 => all.extend(["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"].map(OsString::from)),
            Kind::Pulc | Kind::Mpich | Kind::Intel => {}
        }
        all.extend(self.permission());
        all.extend(options.iter().map(OsString::from));
        all.extend([OsString::from("-n"), ranks.to_string().into(), program.into()]);
        all.extend(words.iter().map(OsString::from));
        all
    }

    /// What Open MPI has to be told before it starts anything for root.
    pub fn permission(&self) -> Option<OsString> {
        let asks = matches!(self.kind, Kind::OpenMpi4 | Kind::OpenMpi5);
        (asks && rustix::process::geteuid().is_root()).then(|| "--allow-run-as-root".into())
    }

    /// Variables that it needs, as words for `env`.
    pub fn environment(&self) -> Vec<OsString> {
        let (Kind::Intel, Some(folder)) = (self.kind, &self.folder) else { return Vec::new() };
        let set = |name: &str, value: &OsStr| {
            let mut word = OsString::from(name);
            word.push("=");
            word.push(value);
            word
        };
        let lib = folder.join("lib");
        let mut path = lib.clone().into_os_string();
        path.push(":");
        path.push(lib.join("libfabric"));
        let mut words = vec![
            set("I_MPI_ROOT", folder.as_os_str()),
            set("I_MPI_PIN", OsStr::new("off")),
            set("LD_LIBRARY_PATH", &path),
        ];
        let providers = lib.join("libfabric/prov");
        if providers.exists() {
            words.push(set("FI_PROVIDER_PATH", providers.as_os_str()));
        }
        words
    }
}

/// What a launcher is, by what it says about itself.
fn judge(text: &str) -> Option<(Kind, String)> {
    let after = |mark: &str| {
        let rest = &text[text.find(mark)? + mark.len()..];
        let word = rest.trim_start_matches([' ', ':', '\t', ')']).split_whitespace().next()?;
        Some(word.trim_end_matches([',', ';']).to_owned())
    };
    if text.starts_with("pulc") || text.contains("PULC") {
        let version = text.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
        return Some((Kind::Pulc, version.unwrap_or("").to_owned()));
    }
    if text.contains("Intel(R) MPI") {
        return Some((Kind::Intel, after("Version").unwrap_or_default()));
    }
    if text.contains("HYDRA") || text.contains("Hydra") {
        return Some((Kind::Mpich, after("Version").unwrap_or_default()));
    }
    if text.contains("Open MPI") || text.contains("OpenRTE") || text.contains("prte") {
        let version =
            after("(Open MPI)").or_else(|| after("(OpenRTE)")).or_else(|| after("Open MPI")).unwrap_or_default();
        let kind = if version.starts_with(['1', '2', '3', '4']) { Kind::OpenMpi4 } else { Kind::OpenMpi5 };
        return Some((kind, version));
    }
    None
}

/// All MPIs but PULC in the search path, each once.
pub fn in_path() -> Vec<Mpi> {
    let mut found: Vec<(PathBuf, Mpi)> = Vec::new();
    for (launcher, compiler) in USUAL {
        let Some(path) = which(launcher) else { continue };
        let Ok(real) = path.canonicalize() else { continue };
        if found.iter().any(|(known, _)| *known == real) {
            continue;
        }
        let beside = path.with_file_name(compiler);
        let compiler = if beside.exists() { Some(beside) } else { which(compiler) };
        if let Ok(mpi) = Mpi::of(path, compiler, None)
            && mpi.kind != Kind::Pulc
        {
            found.push((real, mpi));
        }
    }
    found.into_iter().map(|(_, mpi)| mpi).collect()
}

pub fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_what_they_say() {
        let known = [
            ("HYDRA build details:\n    Version:                                 4.0.2\n", Kind::Mpich, "4.0.2"),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 2026 (id: 1)\n", Kind::Intel, "2021.18"),
            ("mpiexec.openmpi (OpenRTE) 4.1.4\n\nReport bugs to", Kind::OpenMpi4, "4.1.4"),
            ("mpiexec (Open MPI) 5.0.11\n", Kind::OpenMpi5, "5.0.11"),
            ("mpiexec (PULC) 0.1.0\n", Kind::Pulc, "0.1.0"),
        ];
        for (text, kind, version) in known {
            assert_eq!(judge(text), Some((kind, version.to_owned())), "{text}");
        }
        assert_eq!(judge("some other launcher 3"), None);
    }
}
