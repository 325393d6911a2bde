//! Settings that are words instead of numbers, as `pulc info` shows them. Each is read by whoever obeys it; a test looks that none is
//! missing here. What `pulc` itself tells its ranks and keepers by the environment is no setting and is not here.

/// One of them.
pub struct Switch {
    pub variable: &'static str,
    /// What counts where the environment says nothing; empty: nothing.
    pub default: &'static str,
    pub text: &'static str,
}

impl Switch {
    /// The variable's name without what all begin with, in small letters.
    pub fn name(&self) -> String {
        self.variable.trim_start_matches("PULC_").to_ascii_lowercase()
    }

    /// The word in the environment, or the default; and where it comes from. Whether it makes sense is for its reader to say.
    pub fn read(&self) -> (String, &'static str) {
        match std::env::var_os(self.variable).filter(|word| !word.is_empty()) {
            Some(word) => (word.to_string_lossy().into_owned(), "environment"),
            None => (self.default.to_owned(), "default"),
        }
    }
}

const fn switch(variable: &'static str, default: &'static str, text: &'static str) -> Switch {
    Switch { variable, default, text }
}

pub const SWITCHES: &[Switch] = &[
    switch("PULC_NETWORK", "", "networks that messages between nodes may go over, the best one first"),
    switch("PULC_RAILS", "udp", "what carries messages between nodes: udp, tcp, or udp,tcp for both"),
    switch("PULC_MPI", "pulc", "native: programs get the MPI that they were built for"),
    switch("PULC_PROGRESS", "calls", "thread: MPI makes progress while the program computes"),
    switch("PULC_STATS", "", "1: every rank of an MPI job tells at its end what it has done"),
    switch("PULC_TRACE", "", "file for a timeline of MPI calls"),
    switch("PULC_LOG", "warn", "what is told on standard error: error, warn, info or debug"),
    switch("PULC_CALIBRATION", "on", "off: this machine is not measured, and what was measured does not count"),
    switch(
        "PULC_SOCKETS",
        "on",
        "of bypassed programs: off leaves every connection on the kernel, track only follows them",
    ),
    switch("PULC_SOCKETS_AFTER", "8", "data calls of a connection before it is promoted"),
    switch(
        "PULC_SOCKETS_ONLY",
        "",
        "ports of connections that may be promoted, with commas and ranges; without it all",
    ),
    switch(
        "PULC_SOCKETS_BETWEEN",
        "",
        "of root's daemon: pairs of users, by number, whose sockets may meet, as 33:1000,105:* with * for everybody",
    ),
    switch("PULC_INSTANCE", "", "name of the daemon that commands talk to, where a machine has several"),
    switch("PULC_RUN_DIR", "", "where the sockets of a daemon for several users are; commands talk to that one then"),
    switch("PULC_STATE_DIR", "", "where a daemon keeps what it must remember"),
    switch("PULC_DESK", "", "of a daemon: 1 or 0, jobs come last on this node or don't, whatever `pulc config` says"),
    switch("PULC_NO_CGROUP", "", "set to anything: keepers make no cgroup"),
];
