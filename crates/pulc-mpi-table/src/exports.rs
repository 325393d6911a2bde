//! Rust text of a door's exported functions: each widens its counts, calls the generic body for its binary interface, and is
//! exported twice, as `MPI_X` and `PMPI_X`, so that a tool can take the first and call the second. Compiled into the doors by their
//! build scripts.

use crate::Door;
use crate::functions::{Argument, Function, Functions};
use crate::kinds::Shape;
use std::fmt::Write;

pub fn generate(door: Door) -> String {
    let mut text = String::new();
    for function in Functions::load().all().filter(|function| door.has(function)) {
        for (name, large) in function.forms() {
            export(&mut text, function, &name, large);
        }
    }
    text
}

/// The name under which a tool's own function finds ours.
pub fn profiled(name: &str) -> String {
    format!("P{name}")
}

fn export(text: &mut String, function: &Function, name: &str, large: bool) {
    let body = name.trim_start_matches("MPI_").to_lowercase();
    let result = function.result.as_ref().map_or("c_int".into(), |kind| local(&kind.rust(false, false)));
    let _ = write!(text, "unsafe extern \"C\" fn {body}(");
    for argument in &function.arguments {
        let _ = write!(text, "{}: {}, ", argument.name, local(&argument.kind.rust(argument.reads, large)));
    }
    let _ = writeln!(text, ") -> {result} {{");
    let mut passed: Vec<String> = function.arguments.iter().map(|argument| pass(function, argument, large)).collect();
    if function.told {
        passed.push(large.to_string());
    }
    let _ = writeln!(text, "    // SAFETY: passed on as the caller gave them; the caller obeys the MPI standard.");
    let _ = writeln!(text, "    unsafe {{ calls::{}::<A>({}) }}\n}}", function.body_name(), passed.join(", "));
    let _ = writeln!(text, "twins!({name}, {}, {body});\n", profiled(name));
}

/// A type of the interface by the short name that the doors give it.
fn local(kind: &str) -> String {
    kind.replace("A::", "")
}

/// An argument as the body takes it.
fn pass(function: &Function, argument: &Argument, large: bool) -> String {
    let (name, kind) = (&argument.name, &argument.kind);
    if !kind.is_wide() {
        return name.clone();
    }
    let widened = function.large && kind.widens();
    match &kind.shape {
        Shape::Value if kind.widens() && !large => format!("i64::from({name})"),
        Shape::Value => name.clone(),
        _ if !widened => name.clone(),
        _ => {
            let wrapper = if argument.reads { "InInts" } else { "OutInts" };
            format!("{wrapper}::{}({name})", if large { "Large" } else { "Small" })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_function_call_one_body() {
        let text = generate(Door::Standard);
        assert!(text.contains("calls::send::<A>(buf, i64::from(count), datatype, dest, tag, comm)"), "{text}");
        assert!(text.contains("calls::send::<A>(buf, count, datatype, dest, tag, comm)"));
        assert!(text.contains("twins!(MPI_Send_c, PMPI_Send_c, send_c);"));
        assert!(text.contains("InInts::Small(recvcounts)") && text.contains("InInts::Large(recvcounts)"));
        assert!(!text.contains("MPI_Type_struct") && generate(Door::Mpich).contains("MPI_Type_struct"));
    }
}
