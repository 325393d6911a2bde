//! A job as it is asked for. Plain data; made by `pulc submit`, judged by `pulc-sched`, kept in the controller's log.

use super::{Class, Millis, Target};
use crate::message::LaunchSpec;
use serde::{Deserialize, Serialize};

/// What a job wants for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exclusive {
    /// Slots of its own on shared nodes.
    #[default]
    No,
    /// Nobody else on its nodes.
    Node,
    /// No other user on its nodes.
    User,
}

/// What may be done with a job that has to make room for a more urgent one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Yield {
    #[default]
    Suspend,
    Requeue,
    Never,
}

/// When another job has to have come so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum After {
    /// It was started.
    Start,
    /// It has ended, however.
    Any,
    /// It has ended with status 0.
    Ok,
    /// It has failed.
    NotOk,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Dependency {
    pub kind: After,
    /// All tasks of an array, if it is one.
    pub on: Target,
}

/// The tasks of an array job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Array {
    pub indices: Vec<u32>,
    pub at_most_at_once: Option<u32>,
}

/// Where standard streams lie, on the job's first node; relative ones start at its working directory.
/// `%j` job, `%A` array, `%a` index, `%x` name, `%u` user, `%N` node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Files {
    pub output: Option<String>,
    /// With the output, if there is none.
    pub error: Option<String>,
    /// Nothing, if there is none.
    pub input: Option<String>,
    pub append: bool,
}

/// A job as asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobSpec {
    pub name: String,
    /// Processes.
    pub ranks: u32,
    /// Slots for each of them.
    pub threads: u32,
    pub nodes: Option<u32>,
    /// Only these nodes, by name; all nodes if empty.
    pub on: Vec<String>,
    pub not_on: Vec<String>,
    pub features: Vec<String>,
    /// Memory that each of its nodes must have.
    pub memory_mib: Option<u64>,
    /// Cores that each of its nodes must have.
    pub cores: Option<u32>,
    pub exclusive: Exclusive,
    /// May run where all slots are taken.
    pub overbook: bool,
    pub class: Class,
    /// Among equals, less goes first.
    pub nice: i32,
    pub limit_ms: Option<u64>,
    pub after: Vec<Dependency>,
    pub array: Option<Array>,
    pub begin: Option<Millis>,
    pub hold: bool,
    pub requeue: bool,
    pub yields: Yield,
    pub reservation: Option<String>,
    /// Runs once on the first node, in an allocation that `pulc run` inside of it uses; else it is started `ranks` times.
    pub script: bool,
    /// The text of the script, started instead of `launch.argv[0]`.
    pub text: Option<Vec<u8>>,
    pub files: Files,
    pub launch: LaunchSpec,
}

/// What stands for `%j` and its like in the names of files.
pub struct FileNames<'a> {
    pub job: &'a str,
    pub array: &'a str,
    pub index: &'a str,
    pub name: &'a str,
    pub node: &'a str,
    pub user: &'a str,
}

impl FileNames<'_> {
    /// `%%` is a percent sign, what is not known stays.
    pub fn fill(&self, pattern: &str) -> String {
        let mut text = String::new();
        let mut rest = pattern.chars();
        while let Some(c) = rest.next() {
            if c != '%' {
                text.push(c);
                continue;
            }
            match rest.next() {
                Some('j') => text += self.job,
                Some('A') => text += self.array,
                Some('a') => text += self.index,
                // Not a way into another directory.
                Some('x') => text += &self.name.replace('/', "_"),
                Some('N') => text += &self.node.replace('/', "_"),
                Some('u') => text += self.user,
                Some('%') => text.push('%'),
                Some(other) => text.extend(['%', other]),
                None => text.push('%'),
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_filled_in() {
        let names = FileNames { job: "17", array: "15", index: "2", name: "a/b", node: "n1", user: "1000" };
        assert_eq!(names.fill("out-%A_%a-%x.%j"), "out-15_2-a_b.17");
        assert_eq!(names.fill("100%% %q %"), "100% %q %");
    }
}
