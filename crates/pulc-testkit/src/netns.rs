//! Network namespaces that vanish with the test, however it ends: each is held by a `cat` on a pipe whose other end the test
//! holds; when that end closes, `cat` ends, and the kernel removes namespace, cables and all. Nothing is named in /run/netns and the
//! host's own network is not touched: even the bridge lives in a namespace of its own. Called by [`crate::Cluster`].

use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// One namespace and the process that holds it.
pub struct Netns {
    holder: Child,
    /// Namespaces of users without privileges live in one user namespace.
    in_user_namespace: bool,
}

impl Netns {
    /// A namespace of its own; for users without privileges in a new user namespace.
    pub fn new() -> io::Result<Netns> {
        let in_user_namespace = !rustix::process::geteuid().is_root();
        let mut command = Command::new("unshare");
        command.args(if in_user_namespace { &["--user", "--map-root-user", "--net"][..] } else { &["--net"][..] });
        Netns::hold(command, in_user_namespace)
    }

    /// Another namespace whose network this one may be wired to.
    pub fn sibling(&self) -> io::Result<Netns> {
        if !self.in_user_namespace {
            return Netns::new();
        }
        let mut command = self.enter(&["--user"]);
        command.args(["unshare", "--net"]);
        Netns::hold(command, true)
    }

    fn hold(mut command: Command, in_user_namespace: bool) -> io::Result<Netns> {
        // The shell answers once it is inside, and then becomes the holder.
        command
            .args(["--", "sh", "-c", "echo here && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut holder = command.spawn()?;
        let mut answer = String::new();
        if let Some(stdout) = holder.stdout.take() {
            BufReader::new(stdout).read_line(&mut answer)?;
        }
        if answer.trim() != "here" {
            let ended = holder.wait_with_output()?;
            return Err(io::Error::other(format!(
                "no network namespace: {}",
                String::from_utf8_lossy(&ended.stderr).trim()
            )));
        }
        Ok(Netns { holder, in_user_namespace })
    }

    /// Process whose namespace this is.
    pub fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// A command that will run inside; its program and arguments are still to be added.
    pub fn command(&self) -> Command {
        let mut command = self.enter(if self.in_user_namespace { &["--user", "--net"] } else { &["--net"] });
        command.arg("--");
        command
    }

    fn enter(&self, namespaces: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid().to_string()]).args(namespaces);
        if self.in_user_namespace {
            command.arg("--preserve-credentials");
        }
        command
    }

    /// Runs `ip` inside.
    pub fn ip(&self, arguments: &[&str]) -> io::Result<()> {
        let output = self.command().arg("ip").args(arguments).stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(io::Error::other(format!("ip {}: {why}", arguments.join(" "))))
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
