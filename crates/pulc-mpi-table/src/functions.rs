//! Reads `abi/mpi/functions.txt`: names, arguments, where they come from and who implements them. Called by everything in this
//! crate; never guesses: a line that it does not understand is an error with its number.

use crate::kinds::{Kind, Shape};
use std::collections::HashMap;

const TEXT: &str = include_str!("../../../abi/mpi/functions.txt");

/// Who implements a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// Made from its line.
    Auto,
    /// Written by hand in `pulc-mpi-calls`.
    Hand,
    /// Not there yet: raises `MPI_ERR_UNSUPPORTED_OPERATION`.
    Missing,
}

#[derive(Clone, Debug)]
pub struct Argument {
    pub name: String,
    pub kind: Kind,
    /// The callee only reads what it points to.
    pub reads: bool,
    /// The core has no use for it.
    pub unused: bool,
}

#[derive(Clone, Debug)]
pub struct Function {
    /// As it is exported: `MPI_Send`.
    pub name: String,
    /// Version of the standard that introduced it; `-` for names that are in none.
    pub since: String,
    pub large: bool,
    /// The body is told which form was called.
    pub told: bool,
    pub deprecated: bool,
    pub mpich_only: bool,
    /// Kind of the result; an error code where it is `None`.
    pub result: Option<Kind>,
    pub body: Body,
    pub arguments: Vec<Argument>,
    pub variadic: bool,
}

impl Function {
    /// Name of its body: `send` for `MPI_Send`, `mpix_comm_agree` for `MPIX_Comm_agree`.
    pub fn body_name(&self) -> String {
        self.name.strip_prefix("MPI_").unwrap_or(&self.name).to_lowercase()
    }

    /// Every exported name, with whether it is the large-count form.
    pub fn forms(&self) -> Vec<(String, bool)> {
        let mut forms = vec![(self.name.clone(), self.name.ends_with("_c"))];
        if self.large {
            forms.push((format!("{}_c", self.name), true));
        }
        forms
    }
}

pub struct Chapter {
    /// Of the standard; `MPICH` for names that are in none.
    pub number: String,
    pub title: String,
    pub functions: Vec<Function>,
}

pub struct Functions {
    pub chapters: Vec<Chapter>,
}

impl Functions {
    /// The table of this repository.
    ///
    /// # Panics
    /// If a line can't be understood: the table is part of the source, its tests read it.
    pub fn load() -> Functions {
        parse(TEXT).unwrap_or_else(|why| panic!("abi/mpi/functions.txt: {why}"))
    }

    pub fn all(&self) -> impl Iterator<Item = &Function> {
        self.chapters.iter().flat_map(|chapter| &chapter.functions)
    }
}

fn parse(text: &str) -> Result<Functions, String> {
    let mut kinds: HashMap<&str, &str> = HashMap::new();
    let mut chapters: Vec<Chapter> = Vec::new();
    let (mut in_kinds, mut kind) = (false, "");
    for (index, line) in text.lines().enumerate() {
        let fail = |why: String| format!("line {}: {why}", index + 1);
        if let Some(heading) = line.strip_prefix("## ") {
            in_kinds = heading == "kinds";
            if let (false, Some((number, title))) = (in_kinds, heading.split_once(' ')) {
                chapters.push(Chapter { number: number.into(), title: title.into(), functions: Vec::new() });
            }
        } else if line.starts_with('#') || line.trim().is_empty() {
            continue;
        } else if in_kinds {
            let mut words = line.split_whitespace();
            if !line.starts_with(' ') {
                kind = words.next().unwrap_or_default();
                Kind::parse(kind).map_err(fail)?;
            }
            for name in words {
                if kinds.insert(name, kind).is_some() {
                    return Err(fail(format!("{name} has two kinds")));
                }
            }
        } else {
            let function = parse_function(line, &kinds).map_err(fail)?;
            let chapter = chapters.last_mut().ok_or_else(|| fail("a function before the first chapter".into()))?;
            chapter.functions.push(function);
        }
    }
    Ok(Functions { chapters })
}

fn parse_function(line: &str, kinds: &HashMap<&str, &str>) -> Result<Function, String> {
    let (head, tail) = line.split_once('|').ok_or("no `|` between the head and the arguments")?;
    let words: Vec<&str> = head.split_whitespace().collect();
    let [name, since, flags, body] = words[..] else {
        return Err(format!("{} words before `|`, four are needed", words.len()));
    };
    let name = if name.starts_with("MPIX_") { name.to_owned() } else { format!("MPI_{name}") };
    let mut function = Function {
        name,
        since: since.into(),
        large: false,
        told: false,
        deprecated: false,
        mpich_only: false,
        result: None,
        body: match body {
            "auto" => Body::Auto,
            "hand" => Body::Hand,
            "-" => Body::Missing,
            other => return Err(format!("unknown body {other:?}")),
        },
        arguments: Vec::new(),
        variadic: false,
    };
    for flag in flags.split(',').filter(|flag| *flag != "-") {
        match flag.split_once('=') {
            None if flag == "c" => function.large = true,
            None if flag == "told" => function.told = true,
            None if flag == "deprecated" => function.deprecated = true,
            None if flag == "mpich" => function.mpich_only = true,
            Some(("ret", kind)) => function.result = Some(Kind::parse(kind)?),
            _ => return Err(format!("unknown flag {flag:?}")),
        }
    }
    for word in tail.split_whitespace() {
        if word == "..." {
            function.variadic = true;
            continue;
        }
        let (unused, word) = word.strip_prefix('!').map_or((false, word), |rest| (true, rest));
        let (reads, word) = word.strip_prefix('<').map_or((false, word), |rest| (true, rest));
        let (name, kind) = match word.split_once(':') {
            Some((name, kind)) => (name, kind),
            None => (word, *kinds.get(word).ok_or_else(|| format!("{word} has no kind"))?),
        };
        function.arguments.push(Argument { name: name.into(), kind: Kind::parse(kind)?, reads, unused });
    }
    check_lengths(&function)?;
    Ok(function)
}

/// Lengths that are not another argument.
pub const LENGTHS: [&str; 9] =
    ["peers", "sends", "at_root", "members", "incoming", "outgoing", "cartdims", "edge_ends", ""];

fn check_lengths(function: &Function) -> Result<(), String> {
    for argument in &function.arguments {
        if let Shape::Array { length, .. } = &argument.kind.shape {
            let known =
                LENGTHS.contains(&length.as_str()) || function.arguments.iter().any(|other| other.name == *length);
            if !known {
                return Err(format!("{}: nobody knows the length {length:?} of {}", function.name, argument.name));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Door;
    use std::collections::HashSet;

    #[test]
    fn the_table_holds_the_664_names_of_the_standard_once_each() {
        let table = Functions::load();
        let names: Vec<String> = table
            .all()
            .filter(|function| Door::Standard.has(function))
            .flat_map(|function| function.forms().into_iter().map(|(name, _)| name))
            .collect();
        assert_eq!(names.len(), 664);
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 664);
        assert_eq!(names.iter().filter(|name| name.ends_with("_c")).count(), 161);
        assert_eq!(names.iter().filter(|name| name.starts_with("MPI_T_")).count(), 51);
    }

    #[test]
    fn a_line_that_is_wrong_is_named_with_its_number() {
        let head = "## kinds\nint a\n\n## 3 Chapter\n";
        let fails = |line: &str| parse(&format!("{head}{line}\n")).err().unwrap_or_default();
        assert!(fails("Send 1.0 - auto").contains("line 5: no `|`"));
        assert!(fails("Send 1.0 auto | a").contains("3 words before"));
        assert!(fails("Send 1.0 - done | a").contains("unknown body"));
        assert!(fails("Send 1.0 x auto | a").contains("unknown flag"));
        assert!(fails("Send 1.0 - auto | b").contains("b has no kind"));
        assert!(fails("Send 1.0 - auto | a:int[n]").contains("nobody knows the length \"n\""));
        assert!(parse(&format!("{head}Send 1.0 c auto | <a b:int[a]\n")).is_ok());
    }
}
