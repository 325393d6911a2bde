//! `cargo xtask cluster`: a cluster of network namespaces with a daemon each, and one command (or a shell) on its first node.
//! Everything is taken down when the command ends. Arguments: path of `pulc`, number of nodes, the command.

use pulc_hal::os::signals::{SIGHUP, SIGINT, SIGTERM, SignalFd};
use pulc_testkit::Cluster;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(why) => {
            eprintln!("cluster: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, String> {
    let mut arguments = std::env::args_os().skip(1);
    let (program, nodes) = (arguments.next().ok_or("no path of pulc")?, arguments.next().ok_or("no number of nodes")?);
    let nodes: usize = nodes.to_str().and_then(|text| text.parse().ok()).ok_or("not a number of nodes")?;
    let mut command: Vec<OsString> = arguments.collect();
    let cluster = Cluster::new(nodes, &program).map_err(|error| format!("cannot make {nodes} hosts: {error}"))?;
    cluster.start();
    let first = cluster.host(0);
    for host in cluster.hosts() {
        println!("node {}  {}  PULC_STATE_DIR={}", host.number, host.address, host.state_dir.display());
    }
    if command.is_empty() {
        println!("a shell on node 0; leave it to take the cluster down");
        command.push(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into()));
    }
    // So that `pulc` is the one the daemons run.
    let bin = std::path::Path::new(&program).parent().ok_or("the path of pulc has no directory")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(bin.to_path_buf()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(all).map_err(|error| error.to_string())?;
    let mut child = first.program_command("env");
    child.arg({
        let mut setting = OsString::from("PATH=");
        setting.push(path);
        setting
    });
    let mut child = child.args(&command).spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    // After the child, which takes them: an interrupt ends it, and then us, in order.
    let _signals = SignalFd::new(&[SIGINT, SIGTERM, SIGHUP], false).map_err(|error| format!("signals: {error}"))?;
    let status = child.wait().map_err(|error| format!("cannot wait for {command:?}: {error}"))?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
