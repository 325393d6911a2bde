//! How the launchers of MPIs are told of nodes that are network namespaces: a program of ours takes the place of `ssh`. Called by
//! `between` and by `launchers`.

use super::find::{Kind, Mpi};
use crate::Error;
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// What a launcher that runs on the first of some nodes needs to be told to start so many processes on each.
pub struct Across {
    /// Words for `env`.
    pub variables: Vec<OsString>,
    pub options: Vec<OsString>,
}

impl Across {
    pub fn new(mpi: &Mpi, agent: &Path, nodes: &[IpAddr], per_node: u32) -> Across {
        let mut across = Across { variables: Vec::new(), options: Vec::new() };
        let here = nodes[0].to_string();
        let each = |slots: &str| nodes.iter().map(|node| format!("{node}{slots}")).collect::<Vec<_>>().join(",");
        let (slots, per_node) = (format!(":{per_node}"), per_node.to_string());
        let options = &mut across.options;
        let add = |options: &mut Vec<OsString>, words: &[&str]| options.extend(words.iter().map(OsString::from));
        match mpi.kind {
            Kind::Pulc => add(options, &["-ppn", &per_node]),
            Kind::Mpich => {
                add(options, &["-launcher", "ssh", "-launcher-exec"]);
                options.push(agent.into());
                add(options, &["-localhost", &here, "-hosts", &each(&slots)]);
            }
            Kind::Intel => {
                across.variables.push("I_MPI_HYDRA_BOOTSTRAP=ssh".into());
                let mut word = OsString::from("I_MPI_HYDRA_BOOTSTRAP_EXEC=");
                word.push(agent);
                across.variables.push(word);
                add(options, &["-localhost", &here, "-hosts", &each(""), "-ppn", &per_node]);
            }
            Kind::OpenMpi4 | Kind::OpenMpi5 => {
                options.extend(mpi.permission());
                add(options, &["--bind-to", "none", "--host", &each(&slots), "--mca", "plm_rsh_agent"]);
                options.push(agent.into());
                let daemons = if mpi.kind == Kind::OpenMpi4 { "--mca" } else { "--prtemca" };
                add(options, &[daemons, "oob_tcp_if_include", &format!("{here}/24")]);
            }
        }
        across
    }
}

/// Writes a program into `folder` that runs a command at the node whose address stands where a host's name is expected, under a host
/// name and with a `/dev/shm` of its own; options of `ssh` are skipped. `nodes`: addresses, and the words that enter there.
pub fn write_agent(folder: &Path, nodes: &[(IpAddr, Vec<OsString>)]) -> Result<PathBuf, Error> {
    let path = folder.join("agent");
    std::fs::write(&path, script(nodes)).map_err(Error::system("write a program"))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
        .map_err(Error::system("write a program"))?;
    Ok(path)
}

fn script(nodes: &[(IpAddr, Vec<OsString>)]) -> Vec<u8> {
    let mut text = b"#!/bin/sh\nwhile :; do\n  case \"$1\" in\n    -x|-q|-n) shift ;;\n    -o|-p|-l) shift 2 ;;\n    *) break ;;\n  esac\ndone\nhost=$1\nshift\n".to_vec();
    text.extend_from_slice(b"case \"$host\" in\n");
    for (number, (address, enter)) in nodes.iter().enumerate() {
        text.extend_from_slice(format!("  {address}) exec").as_bytes());
        for word in enter {
            text.extend_from_slice(&[b" '", word.as_bytes(), b"'"].concat());
        }
        let inside = format!(
            " unshare --uts --ipc --mount sh -c \"hostname end{number}; mount -t tmpfs none /dev/shm; mount -t sysfs none /sys; $*\" ;;\n"
        );
        text.extend_from_slice(inside.as_bytes());
    }
    text.extend_from_slice(b"esac\necho \"no such end: $host\" >&2\nexit 1\n");
    text
}
