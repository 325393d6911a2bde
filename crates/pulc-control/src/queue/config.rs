//! What is set for a whole cluster (`pulc config`): one small table of keys with values, kept by the controller in its log, given to every
//! node, counted up with every change. A value is checked where it is typed and again by the controller. Decides nothing.

use crate::network::{self, Network};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// Longest path of a program.
const PATH_MAX: usize = 4096;
/// Longest name of a node, and most names of desks.
const NAME_MAX: usize = 255;
const DESKS_MAX: usize = 10_000;
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 1_000..=7 * 24 * 3_600_000;
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 100..=600_000;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClusterConfig {
    /// Counts changes.
    pub version: u64,
    pub health: HealthCheck,
    /// Networks that messages of jobs may use, the best one first; if empty, whatever nodes have in common.
    pub networks: Vec<Network>,
    pub desk: Desks,
}

/// Nodes at which somebody works: jobs get there what nobody else wants.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Desks {
    #[default]
    None,
    All,
    /// By their names.
    Some(Vec<String>),
}

/// The same as it was before desks could be set; such records are in logs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConfigWithNetworks {
    version: u64,
    health: HealthCheck,
    networks: Vec<Network>,
}

impl From<&ConfigWithNetworks> for ClusterConfig {
    fn from(before: &ConfigWithNetworks) -> ClusterConfig {
        let (health, networks) = (before.health.clone(), before.networks.clone());
        ClusterConfig { version: before.version, health, networks, desk: Desks::None }
    }
}

/// The same as it was before networks could be set; such records are in logs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConfigBefore {
    version: u64,
    health: HealthCheck,
}

impl From<&ConfigBefore> for ClusterConfig {
    fn from(before: &ConfigBefore) -> ClusterConfig {
        ClusterConfig { version: before.version, health: before.health.clone(), ..ClusterConfig::default() }
    }
}

/// A program that each node runs to see whether it is fit for work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HealthCheck {
    /// Absolute path on each node; none is run without.
    pub program: Option<String>,
    /// From the end of one run to the beginning of the next.
    pub interval_ms: u64,
    /// One that takes longer is killed and counts as failed.
    pub timeout_ms: u64,
    pub action: HealthAction,
}

/// What follows from a check that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum HealthAction {
    /// The node gets nothing new until the check succeeds.
    #[default]
    Drain,
    /// It is told among the events.
    Events,
    /// The check is not run.
    None,
}

impl Default for HealthCheck {
    fn default() -> HealthCheck {
        HealthCheck { program: None, interval_ms: 60_000, timeout_ms: 10_000, action: HealthAction::Drain }
    }
}

impl HealthCheck {
    /// The program, if it is to be run at all.
    pub fn wanted(&self) -> Option<&str> {
        self.program.as_deref().filter(|_| self.action != HealthAction::None)
    }
}

impl HealthAction {
    pub const ALL: [(&'static str, HealthAction); 3] =
        [("drain", HealthAction::Drain), ("events", HealthAction::Events), ("none", HealthAction::None)];

    pub fn word(self) -> &'static str {
        HealthAction::ALL.iter().find(|(_, action)| *action == self).map_or("", |(word, _)| word)
    }
}

/// One change; what a value is empty for goes back to its default.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Setting {
    HealthProgram(Option<String>),
    HealthIntervalMs(u64),
    HealthTimeoutMs(u64),
    HealthAction(HealthAction),
    Networks(Vec<Network>),
    Desk(Desks),
}

/// Keys with what they mean.
pub const KEYS: [(&str, &str); 6] = [
    ("health.program", "program that each node runs to see whether it is fit for work; absolute path, empty for none"),
    ("health.interval", "time from the end of one run to the next, 1s to 7d"),
    ("health.timeout", "time after which it is killed and counts as failed, 0.1s to 10m"),
    ("health.action", "what follows from its failure: drain, events or none (then it is not run)"),
    (
        "networks",
        "networks for messages of jobs, the best one first: 10.1.0.0/16,10.2.0.0/16; empty for what nodes have in common",
    ),
    ("desk", "nodes at which somebody works, so that jobs come last there: all, or names with commas; empty for none"),
];

impl Setting {
    /// `KEY=VALUE`; `time` reads a length of time.
    ///
    /// # Errors
    /// One line that names key and value.
    pub fn parse(text: &str, time: impl Fn(&str) -> Result<u64, String>) -> Result<Setting, String> {
        let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is no setting; write KEY=VALUE"))?;
        let default = HealthCheck::default();
        let time = |default: u64| if value.is_empty() { Ok(default) } else { time(value) };
        let setting = match key {
            "health.program" => Setting::HealthProgram(Some(value.to_owned()).filter(|value| !value.is_empty())),
            "health.interval" => Setting::HealthIntervalMs(time(default.interval_ms)?),
            "health.timeout" => Setting::HealthTimeoutMs(time(default.timeout_ms)?),
            "health.action" if value.is_empty() => Setting::HealthAction(default.action),
            "health.action" => {
                let found = HealthAction::ALL.iter().find(|(word, _)| *word == value);
                let action = found.ok_or_else(|| format!("{value:?} is no action; there are drain, events, none"))?.1;
                Setting::HealthAction(action)
            }
            "networks" if value.is_empty() => Setting::Networks(Vec::new()),
            "networks" => Setting::Networks(network::parse(value)?),
            "desk" => Setting::Desk(Desks::parse(value)),
            _ => {
                let keys: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
                return Err(format!("there is no setting {key:?}; there are {}", keys.join(", ")));
            }
        };
        setting.check()?;
        Ok(setting)
    }

    /// # Errors
    /// One line that names what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let within = |key: &str, value: u64, range: std::ops::RangeInclusive<u64>| {
            let (from, to) = (*range.start() as f64 / 1000.0, *range.end() as f64 / 1000.0);
            let why = || format!("{key} is {} s; from {from} s to {to} s are possible", value as f64 / 1000.0);
            if range.contains(&value) { Ok(()) } else { Err(why()) }
        };
        match self {
            Setting::HealthProgram(Some(path)) if !path.starts_with('/') => {
                Err(format!("health.program is {path:?}; it has to be an absolute path"))
            }
            Setting::HealthProgram(Some(path)) if path.len() > PATH_MAX || path.contains('\0') => {
                Err(format!("health.program is no path: it has {} bytes or a NUL in it", path.len()))
            }
            Setting::HealthProgram(_) | Setting::HealthAction(_) => Ok(()),
            Setting::Networks(networks) => network::check(networks),
            Setting::Desk(desks) => desks.check(),
            Setting::HealthIntervalMs(value) => within("health.interval", *value, INTERVAL_MS),
            Setting::HealthTimeoutMs(value) => within("health.timeout", *value, TIMEOUT_MS),
        }
    }
}

impl Desks {
    fn parse(text: &str) -> Desks {
        match text {
            "" => Desks::None,
            "all" => Desks::All,
            names => Desks::Some(names.split(',').map(str::to_owned).collect()),
        }
    }

    fn check(&self) -> Result<(), String> {
        let Desks::Some(names) = self else { return Ok(()) };
        let is_name = |name: &String| {
            !name.is_empty()
                && name.len() <= NAME_MAX
                && !name.contains(|c: char| c == ',' || c.is_whitespace() || c.is_control())
        };
        match names.iter().find(|name| !is_name(name)) {
            Some(name) => {
                Err(format!("desk has {name:?} in it, which is no name of a node; write all, or names with commas"))
            }
            None if names.len() > DESKS_MAX => Err(format!("desk has {} names; {DESKS_MAX} are possible", names.len())),
            None => Ok(()),
        }
    }

    /// Whether somebody works at the node of this name.
    pub fn has(&self, node: &str) -> bool {
        match self {
            Desks::None => false,
            Desks::All => true,
            Desks::Some(names) => names.iter().any(|name| name == node),
        }
    }

    fn text(&self) -> String {
        match self {
            Desks::None => String::new(),
            Desks::All => "all".to_owned(),
            Desks::Some(names) => names.join(","),
        }
    }
}

impl ClusterConfig {
    pub fn set(&mut self, setting: &Setting) {
        match setting {
            Setting::HealthProgram(program) => self.health.program.clone_from(program),
            Setting::HealthIntervalMs(value) => self.health.interval_ms = *value,
            Setting::HealthTimeoutMs(value) => self.health.timeout_ms = *value,
            Setting::HealthAction(action) => self.health.action = *action,
            Setting::Networks(networks) => self.networks.clone_from(networks),
            Setting::Desk(desks) => self.desk.clone_from(desks),
        }
    }

    /// `KEY=VALUE`, a line each, as [`Setting::parse`] reads them.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut put = |key: &str, value: String| _ = writeln!(text, "{key}={value}");
        put("health.program", self.health.program.clone().unwrap_or_default());
        put("health.interval", format!("{}s", self.health.interval_ms as f64 / 1000.0));
        put("health.timeout", format!("{}s", self.health.timeout_ms as f64 / 1000.0));
        put("health.action", self.health.action.word().to_owned());
        put("networks", network::text(&self.networks));
        put("desk", self.desk.text());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Setting, String> {
        let seconds = |text: &str| {
            let number = text.trim_end_matches('s').parse::<f64>().map_err(|error| error.to_string())?;
            Ok((number * 1000.0) as u64)
        };
        Setting::parse(text, seconds)
    }

    #[test]
    fn what_is_shown_can_be_said_again() {
        let mut config = ClusterConfig::default();
        for text in [
            "health.program=/bin/check",
            "health.interval=30s",
            "health.timeout=0.5s",
            "health.action=events",
            "networks=10.1.0.0/16,fd00::/8",
            "desk=ws1,ws2",
        ] {
            config.set(&parse(text).unwrap());
        }
        let mut again = ClusterConfig::default();
        config.text().lines().for_each(|line| again.set(&parse(line).unwrap()));
        assert_eq!(config, again);
        assert_eq!(config.health.wanted(), Some("/bin/check"));
        assert!(config.desk.has("ws2") && !config.desk.has("ws3") && !config.desk.has("all"));
        config.set(&parse("desk=all").unwrap());
        assert!(config.desk.has("ws3"));
        ["health.program=", "health.interval=", "health.timeout=", "health.action=", "networks=", "desk="]
            .iter()
            .for_each(|text| config.set(&parse(text).unwrap()));
        assert_eq!(config, ClusterConfig::default());
        assert_eq!(config.text().lines().count(), KEYS.len());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_key() {
        for (text, said) in [
            ("health", "write KEY=VALUE"),
            ("helth.program=/x", "there is no setting \"helth.program\"; there are health.program,"),
            ("health.program=x", "absolute path"),
            ("health.interval=0.5s", "health.interval is 0.5 s; from 1 s"),
            ("health.timeout=601s", "health.timeout is 601 s"),
            ("health.action=reboot", "there are drain, events, none"),
            ("networks=10.1.0.1/16", "10.1.0.0/16 is one"),
            ("desk=ws1,,ws2", "desk has \"\" in it"),
            ("desk=ws 1", "desk has \"ws 1\" in it"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
        }
    }
}
