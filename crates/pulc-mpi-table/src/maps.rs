//! Rust text of the maps between the standard interface and the neutral values (which are MPICH's). Compiled into
//! `pulc-mpi-calls` by its build script.

use crate::Constants;
use crate::kinds::HANDLES;
use std::fmt::Write;

/// Enumerations whose values differ.
pub const SETS: [&str; 18] = [
    "rank",
    "tag",
    "error class",
    "thread level",
    "comparison",
    "topology",
    "split type",
    "order",
    "distribution",
    "distribution argument",
    "combiner",
    "type class",
    "keyval",
    "lock",
    "window assertion",
    "window flavour",
    "window model",
    "seek",
];

/// `ErrorClass` for `error class`.
pub fn set_name(group: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    group.split(' ').map(capital).collect()
}

/// Everything in one text.
pub fn generate() -> String {
    let constants = Constants::load();
    let mut text = String::from("/// An enumeration or sentinel whose values differ between the binary interfaces.\n");
    text.push_str("#[derive(Clone, Copy, PartialEq, Eq, Debug)]\npub enum Set {\n");
    for group in SETS {
        let _ = writeln!(text, "    {},", set_name(group));
    }
    text.push_str("}\n\n/// Pairs (standard, neutral).\npub(crate) fn pairs(set: Set) -> &'static [(i32, i32)] {\n    match set {\n");
    for group in SETS {
        let _ = writeln!(text, "        Set::{} => &{:?},", set_name(group), pairs(&constants, group));
    }
    text.push_str("    }\n}\n\n");
    limits(&mut text, &constants);
    for (group, handle) in HANDLES {
        let mut outward = pairs(&constants, group);
        // Aliases of one type: the first name wins.
        outward.sort_by_key(|(_, neutral)| *neutral);
        outward.dedup_by_key(|(_, neutral)| *neutral);
        let outward: Vec<(i32, i32)> = outward.iter().map(|(standard, neutral)| (*neutral, *standard)).collect();
        let _ = writeln!(text, "/// Pairs (neutral, standard), sorted.");
        let _ = writeln!(text, "pub(crate) static {}: &[(i32, i32)] = &{outward:?};", handle.to_uppercase());
    }
    text.push_str("/// Neutral value of each predefined handle of the standard interface; 0 where there is none.\n");
    let _ = writeln!(text, "pub(crate) static PREDEFINED: [i32; {}] = {:?};", PREDEFINED, predefined(&constants));
    text
}

/// Lengths of strings in both interfaces.
fn limits(text: &mut String, constants: &Constants) {
    let group = constants.group("size of string").expect("constants.txt has the sizes of strings");
    let names: Vec<String> =
        group.constants.iter().map(|one| limit_name(one.name.trim_start_matches("MPI_MAX_"))).collect();
    let _ = writeln!(
        text,
        "/// A string whose length is limited.\n#[derive(Clone, Copy, PartialEq, Eq, Debug)]\npub enum Limit {{"
    );
    for name in &names {
        let _ = writeln!(text, "    {name},");
    }
    text.push_str("}\n\n/// Bytes (MPICH, standard).\npub(crate) fn limits(limit: Limit) -> (usize, usize) {\n    match limit {\n");
    for (name, one) in names.iter().zip(&group.constants) {
        let bytes = |value: &crate::constants::Value| value.number().unwrap_or_default();
        let _ = writeln!(text, "        Limit::{name} => ({}, {}),", bytes(&one.mpich), bytes(&one.standard));
    }
    text.push_str("    }\n}\n\n");
}

/// `ObjectName` for `OBJECT_NAME`.
pub fn limit_name(constant: &str) -> String {
    set_name(&constant.to_lowercase().replace('_', " "))
}

/// One more than the largest predefined handle, rounded up.
const PREDEFINED: usize = 0x300;

fn predefined(constants: &Constants) -> Vec<i32> {
    let mut table = vec![0; PREDEFINED];
    for (group, _) in HANDLES {
        for (standard, neutral) in pairs(constants, group) {
            table[usize::try_from(standard).expect("handles are positive")] = neutral;
        }
    }
    table
}

/// (standard, neutral) of a group's constants that both have.
fn pairs(constants: &Constants, group: &str) -> Vec<(i32, i32)> {
    let group = constants.group(group).unwrap_or_else(|| panic!("constants.txt has no group {group:?}"));
    let narrow = |value: i64| value as u32 as i32;
    let both = group.constants.iter().filter_map(|one| Some((one.standard.number()?, one.mpich.number()?)));
    both.map(|(standard, mpich)| (narrow(standard), narrow(mpich))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_map_names_the_values_of_the_table() {
        let text = generate();
        assert!(text.contains("Set::Rank => &[(-1, -2), (-3, -1), (-4, -3)]"), "{text}");
        assert!(text.contains("static COMM: &[(i32, i32)] = &[(67108864, 256), (1140850688, 257), (1140850689, 258)]"));
    }
}
