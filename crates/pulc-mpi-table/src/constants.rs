//! Reads `abi/mpi/constants.txt`: the value of every constant in both binary interfaces. Called by `headers` and `maps`.

const TEXT: &str = include_str!("../../../abi/mpi/constants.txt");

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// As it is written in the table, decimal or hexadecimal.
    Number { text: String, value: i64 },
    /// A variable that the library exports.
    Data,
    /// A function that the library exports.
    Symbol(String),
    /// Not there in this interface.
    None,
}

impl Value {
    pub fn number(&self) -> Option<i64> {
        match self {
            Value::Number { value, .. } => Some(*value),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Constant {
    pub name: String,
    pub mpich: Value,
    pub standard: Value,
}

impl Constant {
    pub fn value(&self, door: crate::Door) -> &Value {
        match door {
            crate::Door::Mpich => &self.mpich,
            crate::Door::Standard => &self.standard,
        }
    }
}

pub struct Group {
    pub name: String,
    pub constants: Vec<Constant>,
}

pub struct Constants {
    pub groups: Vec<Group>,
}

impl Constants {
    /// The table of this repository.
    ///
    /// # Panics
    /// If a line can't be understood: the table is part of the source, its tests read it.
    pub fn load() -> Constants {
        parse(TEXT).unwrap_or_else(|why| panic!("abi/mpi/constants.txt: {why}"))
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }
}

fn parse(text: &str) -> Result<Constants, String> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(name) = line.strip_prefix("## ") {
            groups.push(Group { name: name.into(), constants: Vec::new() });
        } else if !line.starts_with('#') && !line.trim().is_empty() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, mpich, standard] = words[..] else {
                return Err(format!("line {}: {} words, three are needed", index + 1, words.len()));
            };
            let group = groups.last_mut().ok_or_else(|| format!("line {}: before the first group", index + 1))?;
            group.constants.push(Constant { name: name.into(), mpich: value(mpich), standard: value(standard) });
        }
    }
    Ok(Constants { groups })
}

fn value(text: &str) -> Value {
    let number = match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    match (text, number) {
        (_, Some(value)) => Value::Number { text: text.into(), value },
        ("-", None) => Value::None,
        ("data", None) => Value::Data,
        (symbol, None) => Value::Symbol(symbol.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_constant_is_there_once_and_every_enumeration_is_one_to_one() {
        let table = Constants::load();
        let mut names = HashSet::new();
        for group in &table.groups {
            let aliases = ["datatype", "size of string", "ignored", "null function", "file mode", "fortran status"];
            let (mut mpich, mut standard) = (HashSet::new(), HashSet::new());
            for constant in &group.constants {
                assert!(names.insert(constant.name.clone()), "{} stands there twice", constant.name);
                let may_repeat = aliases.contains(&group.name.as_str())
                    || ["version", "address", "tool", "tool handle", "tool safety"].contains(&group.name.as_str());
                for (seen, value) in [(&mut mpich, &constant.mpich), (&mut standard, &constant.standard)] {
                    if let Some(number) = value.number() {
                        assert!(seen.insert(number) || may_repeat, "{} has a value that is taken", constant.name);
                    }
                }
            }
        }
        assert!(names.len() > 370, "{}", names.len());
    }

    #[test]
    fn handles_of_the_standard_interface_are_below_4096_and_those_of_mpich_carry_their_kind() {
        let table = Constants::load();
        for (group, kind) in [("comm", 1), ("group", 2), ("datatype", 3), ("errhandler", 5), ("op", 6), ("info", 7)] {
            for constant in &table.group(group).expect("the group is there").constants {
                if let Some(value) = constant.standard.number() {
                    assert!((1..4096).contains(&value), "{}", constant.name);
                }
                if let Some(value) = constant.mpich.number() {
                    assert_eq!(value >> 26 & 15, kind, "{}", constant.name);
                }
            }
        }
    }
}
