//! What this node knows of itself and its membership does not tell at once. Read once a second; never fails, only knows less.

use super::message::Facts;

pub fn read(load_milli: u32) -> Facts {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let mib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
    };
    Facts { memory_mib: mib("MemTotal"), memory_free_mib: mib("MemAvailable"), load_milli }
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_machine_has_memory_and_not_more_free_than_it_has() {
        let facts = super::read(0);
        assert!(facts.memory_mib > 0 && facts.memory_free_mib <= facts.memory_mib, "{facts:?}");
    }
}
