//! How the cores of this machine lie to each other: which are threads of one physical core, which share the last cache, which
//! are near to which memory. Read from sysfs; where it tells nothing (containers may hide it), every core counts as a
//! physical one beside all others. Called by the launcher's placement; never decides anything.
//! Source: Linux, Documentation/ABI/stable/sysfs-devices-system-cpu and -node.

use std::path::Path;

/// Where the kernel shows it.
pub const SYSFS: &str = "/sys";

/// One core (hardware thread) that a process may run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Core {
    pub number: u32,
    /// The lowest number among the threads of its physical core.
    pub physical: u32,
    /// The lowest number among the cores that share its last cache.
    pub cache: u32,
    /// Node of memory (NUMA).
    pub node: u32,
}

/// The given cores, near ones next to each other: by memory, then cache, then physical core.
pub fn read(sysfs: &Path, cores: &[u32]) -> Vec<Core> {
    let nodes = memory_nodes(sysfs);
    let mut found: Vec<Core> = cores
        .iter()
        .map(|&number| {
            let cpu = sysfs.join(format!("devices/system/cpu/cpu{number}"));
            let siblings =
                list(&cpu.join("topology/core_cpus_list")).or_else(|| list(&cpu.join("topology/thread_siblings_list")));
            let node = nodes.iter().find(|(_, cores)| cores.contains(&number)).map_or(0, |(node, _)| *node);
            // A core that shares no cache of the last level with others stands for itself, as one without siblings does.
            Core { number, physical: lowest(siblings, number), cache: lowest(last_cache(&cpu), number), node }
        })
        .collect();
    found.sort_by_key(|core| (core.node, core.cache, core.physical, core.number));
    found
}

fn lowest(list: Option<Vec<u32>>, number: u32) -> u32 {
    list.filter(|list| list.contains(&number)).and_then(|list| list.into_iter().min()).unwrap_or(number)
}

/// Cores that share the cache of the highest level.
fn last_cache(cpu: &Path) -> Option<Vec<u32>> {
    let level = |folder: &Path| std::fs::read_to_string(folder.join("level")).ok()?.trim().parse::<u32>().ok();
    let folders = (0..8).map(|index| cpu.join(format!("cache/index{index}")));
    let highest = folders.filter_map(|folder| Some((level(&folder)?, folder))).max_by_key(|(level, _)| *level);
    list(&highest?.1.join("shared_cpu_list"))
}

fn memory_nodes(sysfs: &Path) -> Vec<(u32, Vec<u32>)> {
    let entries = std::fs::read_dir(sysfs.join("devices/system/node")).into_iter().flatten().flatten();
    let node = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        Some((number, list(&entry.path().join("cpulist"))?))
    };
    entries.filter_map(node).collect()
}

/// A file with a list of cores.
fn list(path: &Path) -> Option<Vec<u32>> {
    parse_list(std::fs::read_to_string(path).ok()?.trim())
}

/// Most cores that a list may name: the kernel's own limit is lower.
const CORES_MAX: u32 = 1 << 16;

/// `0-3,8,10-11`
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut cores = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CORES_MAX || first > last {
            return None;
        }
        cores.extend(first..=last);
    }
    Some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A made-up machine: for each core its siblings and those that share its last cache; for each node its cores.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str, cores: &[(&str, &str)], nodes: &[&str]) -> Machine {
            let root = std::env::temp_dir().join(format!("pulc-sysfs-{name}-{}", std::process::id()));
            let write = |path: String, text: &str| {
                let path = root.join("devices/system").join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, format!("{text}\n")).unwrap();
            };
            for (number, (siblings, sharers)) in cores.iter().enumerate() {
                write(format!("cpu/cpu{number}/topology/thread_siblings_list"), siblings);
                write(format!("cpu/cpu{number}/cache/index0/level"), "1");
                write(format!("cpu/cpu{number}/cache/index0/shared_cpu_list"), siblings);
                write(format!("cpu/cpu{number}/cache/index3/level"), "3");
                write(format!("cpu/cpu{number}/cache/index3/shared_cpu_list"), sharers);
            }
            for (number, cores) in nodes.iter().enumerate() {
                write(format!("node/node{number}/cpulist"), cores);
            }
            Machine(root)
        }

        fn numbers(&self, cores: &[u32]) -> Vec<u32> {
            read(&self.0, cores).iter().map(|core| core.number).collect()
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn threads_of_one_core_stand_side_by_side_however_they_are_numbered() {
        // Two packages of two cores of two threads, the second threads numbered after all first ones.
        let siblings = ["0,4", "1,5", "2,6", "3,7"];
        let cores: Vec<_> = (0..8).map(|n| (siblings[n % 4], if n % 4 < 2 { "0-1,4-5" } else { "2-3,6-7" })).collect();
        let machine = Machine::new("smt", &cores, &["0-1,4-5", "2-3,6-7"]);
        assert_eq!(machine.numbers(&[0, 1, 2, 3, 4, 5, 6, 7]), [0, 4, 1, 5, 2, 6, 3, 7]);
        let six = read(&machine.0, &[6])[0];
        assert_eq!(six, Core { number: 6, physical: 2, cache: 2, node: 1 });
    }

    #[test]
    fn caches_divide_a_node_and_nodes_need_not_follow_the_numbers() {
        let cores = [("0", "0,2"), ("1", "1,3"), ("2", "0,2"), ("3", "1,3")];
        let machine = Machine::new("caches", &cores, &["0-3"]);
        assert_eq!(machine.numbers(&[0, 1, 2, 3]), [0, 2, 1, 3]);
        let machine = Machine::new("nodes", &cores, &["1,3", "0,2"]);
        assert_eq!(machine.numbers(&[0, 1, 2, 3]), [1, 3, 0, 2]);
    }

    #[test]
    fn where_nothing_is_shown_every_core_stands_for_itself() {
        let cores = read(Path::new("/nonexistent"), &[3, 1]);
        let alone = |number| Core { number, physical: number, cache: number, node: 0 };
        assert_eq!(cores, [alone(1), alone(3)]);
    }

    #[test]
    fn lists_as_sysfs_prints_them_are_understood_and_nonsense_is_not() {
        assert_eq!(parse_list("0-2,8,10-11"), Some(vec![0, 1, 2, 8, 10, 11]));
        assert_eq!(parse_list(""), Some(Vec::new()));
        for nonsense in ["a", "3-1", "0-4000000000", "-1"] {
            assert_eq!(parse_list(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn this_machine_is_read_without_losing_a_core() {
        let allowed = crate::os::cpu::allowed_cores().unwrap();
        let mut numbers: Vec<u32> = read(Path::new(SYSFS), &allowed).iter().map(|core| core.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, allowed);
    }
}
