//! Rust text of the bodies that need no thought: check, convert, one call of `pulc_mpi::call`, map the result. Compiled into
//! `pulc-mpi-calls` by its build script, generic over the binary interface. A function whose arguments do not follow the rules
//! below is written by hand there and says so in the table.
//!
//! The rules: inputs go in the order of the standard, results come back as a tuple in that order; a value that is read and may be
//! changed goes as `&mut`; a `flag` beside other results becomes an `Option` of them; an input that is the length of another one is
//! left out, slices know theirs.

use crate::functions::{Argument, Body, Function, Functions};
use crate::kinds::Shape;
use crate::maps::{limit_name, set_name};
use std::fmt::Write;

pub fn generate() -> String {
    let mut text = String::new();
    for function in Functions::load().all() {
        match function.body {
            Body::Auto => auto(&mut text, function),
            Body::Missing => missing(&mut text, function),
            Body::Hand => {}
        }
    }
    text
}

fn signature(text: &mut String, function: &Function, hidden: bool) {
    let _ =
        writeln!(text, "/// `{}`.\n///\n/// # Safety\n/// Every argument is as the MPI standard asks.", function.name);
    let _ = writeln!(text, "#[inline]\npub unsafe fn {}<A: Abi>(", function.body_name());
    for argument in &function.arguments {
        let underscore = if hidden { "_" } else { "" };
        let kind = argument.kind.body(argument.reads, function.large);
        let _ = writeln!(text, "    {underscore}{}: {kind},", argument.name);
    }
    if function.told {
        let underscore = if hidden { "_" } else { "" };
        let _ = writeln!(text, "    {underscore}large: bool,");
    }
    let result = function.result.as_ref().map_or("c_int".into(), |kind| kind.rust(false, false));
    let _ = writeln!(text, ") -> {result} {{");
}

/// The object whose error handler hears of an error.
fn raised_on(function: &Function) -> Option<(&str, &'static str, bool)> {
    function.arguments.iter().find_map(|argument| {
        let kind = match argument.kind.base.as_str() {
            "comm" => "Comm",
            "win" => "Win",
            "file" => "File",
            "session" => "Session",
            _ => return None,
        };
        match argument.kind.shape {
            Shape::Value => Some((argument.name.as_str(), kind, false)),
            Shape::InOut | Shape::In => Some((argument.name.as_str(), kind, true)),
            _ => None,
        }
    })
}

fn on(function: &Function) -> String {
    match raised_on(function) {
        None => "On::None".into(),
        Some((name, kind, false)) => format!("On::{kind}({name}.inward())"),
        Some((name, kind, true)) => {
            format!("if {name}.is_null() {{ On::None }} else {{ On::{kind}(unsafe {{ {name}.read() }}.inward()) }}")
        }
    }
}

fn missing(text: &mut String, function: &Function) {
    let object = raised_on(function);
    let mut named = function.clone();
    for argument in &mut named.arguments {
        if object.is_none_or(|(name, ..)| name != argument.name) {
            argument.name.insert(0, '_');
        }
    }
    signature(text, &named, false);
    if function.name.starts_with("MPI_T_") {
        let _ = writeln!(text, "    guard::tool_unsupported::<A>()\n}}\n");
    } else {
        let _ = writeln!(text, "    // SAFETY: a pointer that the caller gave and that is not null.");
        let _ = writeln!(text, "    let on = {};", on(function));
        let _ = writeln!(text, "    guard::unsupported::<A>({:?}, on)\n}}\n", function.name);
    }
}

fn auto(text: &mut String, function: &Function) {
    let mut parts = Parts::default();
    let texts_out = function.arguments.iter().any(|one| one.kind.limit.is_some() && !one.reads);
    let outs: Vec<&Argument> = function.arguments.iter().filter(|one| is_result(one) && !one.unused).collect();
    let flagged = outs.iter().any(|one| one.name == "flag") && outs.len() > 1;
    for argument in &function.arguments {
        if !(argument.unused || texts_out && argument.name == "resultlen") {
            convert(&mut parts, function, argument, flagged);
        }
    }
    if function.told {
        parts.inputs.push("large".into());
    }
    signature(text, function, false);
    let _ = writeln!(text, "    // SAFETY: a pointer that the caller gave and that is not null.");
    let _ = writeln!(text, "    let on = {};", on(function));
    let _ = writeln!(
        text,
        "    // SAFETY: the pointers are the caller's, who promises what the MPI standard asks for each of them."
    );
    // The arguments themselves go in, not their addresses: each would be stored, and loaded twice.
    let _ = writeln!(text, "    guard::run::<A>(&{:?}, on, move || unsafe {{", function.name);
    text.push_str(&parts.before);
    let mut call = format!("call::{}({})?", function.body_name(), parts.inputs.join(", "));
    if !parts.written_back.is_empty() {
        // A request whose operation failed is gone all the same.
        let _ = writeln!(text, "        let outcome = {};", call.trim_end_matches('?'));
        text.push_str(&parts.written_back);
        call = "outcome?".into();
    }
    let results = parts.results.join(", ");
    match (parts.results.len(), flagged) {
        (0, _) => {
            let _ = writeln!(text, "        {call};");
        }
        (1, false) => {
            let _ = writeln!(text, "        let {results} = {call};");
        }
        (_, false) => {
            let _ = writeln!(text, "        let ({results}) = {call};");
        }
        (count, true) => {
            let pattern = if count == 1 { results } else { format!("({results})") };
            let _ = writeln!(text, "        let found = {call};");
            let _ = writeln!(text, "        poke(flag, c_int::from(found.is_some()))?;");
            let _ = writeln!(text, "        if let Some({pattern}) = found {{\n{}        }}", parts.after);
            parts.after.clear();
        }
    }
    let _ = writeln!(text, "{}        Ok(())\n    }})\n}}\n", parts.after);
}

#[derive(Default)]
struct Parts {
    before: String,
    inputs: Vec<String>,
    results: Vec<String>,
    /// Values that were read and may have been changed, also by a call that fails.
    written_back: String,
    after: String,
}

fn is_result(argument: &Argument) -> bool {
    let array = matches!(argument.kind.shape, Shape::Array { in_out: false, triple: false, .. });
    let text = argument.kind.base == "text";
    !argument.reads && (argument.kind.shape == Shape::Out && !argument.kind.is_function() || array || text)
}

/// A slice knows its own length.
fn is_length_of_input(function: &Function, name: &str) -> bool {
    function.arguments.iter().any(|one| match &one.kind.shape {
        Shape::Array { length, in_out, triple } => length == name && (one.reads || *in_out || *triple),
        _ => false,
    })
}

fn convert(parts: &mut Parts, function: &Function, argument: &Argument, flagged: bool) {
    let (name, kind) = (&argument.name, &argument.kind);
    let wide = kind.is_wide() && kind.widens() && function.large;
    if is_length_of_input(function, name) {
        return;
    }
    if is_result(argument) {
        if flagged && name == "flag" {
            return;
        }
        let value = format!("{name}_value");
        let _ = writeln!(parts.after, "        {}", result(function, argument, &value));
        parts.results.push(value);
        return;
    }
    let input = match &kind.shape {
        Shape::Value if kind.handle().is_some() => format!("{name}.inward()"),
        Shape::Value if kind.base == "buffer" && argument.reads => format!("A::buffer_in({name}.cast_mut())"),
        Shape::Value if kind.base == "buffer" => format!("A::buffer_in({name})"),
        Shape::Value if kind.base == "text" => {
            let _ = writeln!(parts.before, "        let {name} = text_in({name})?;");
            format!("&{name}")
        }
        Shape::Value if kind.base == "bool" => format!("{name} != 0"),
        Shape::Value => scalar_in(argument, name),
        // Reads what it points to.
        Shape::Out => {
            let _ = writeln!(parts.before, "        let {name} = status_in::<A>({name})?;");
            format!("&{name}")
        }
        Shape::In => format!("peek({name})?.inward()"),
        Shape::InOut => {
            let (inward, outward) = in_out(argument);
            let _ = writeln!(parts.before, "        let mut {name}_value = {inward};");
            let _ = writeln!(parts.written_back, "        {outward}");
            format!("&mut {name}_value")
        }
        Shape::Array { length, triple, in_out } => {
            let length = length_of(function, length);
            let take = match () {
                () if *triple => format!("slice_in({name}.cast_const(), {length})?"),
                () if *in_out => format!("slice_in_out({name}, {length})?"),
                () if kind.handle().is_some() => format!("handles_in({name}, {length})?"),
                () if wide => format!("{name}.take({length})?"),
                () if kind.is_wide() => format!("Ints::Large(slice_in({name}, {length})?)"),
                () if kind.base == "bool" => format!("bools_in({name}, {length})?"),
                () if kind.map().is_some() => {
                    let set = set_name(kind.map().unwrap_or_default());
                    format!("constants_in::<A>(Set::{set}, {name}, {length})?")
                }
                () => format!("slice_in({name}, {length})?"),
            };
            let _ = writeln!(parts.before, "        let {name} = {take};");
            let owned = kind.handle().is_some() || kind.base == "bool" || kind.map().is_some();
            if owned { format!("&{name}") } else { name.clone() }
        }
        Shape::Deep => unreachable!("argv is never used"),
    };
    parts.inputs.push(input);
}

fn scalar_in(argument: &Argument, name: &str) -> String {
    match argument.kind.map() {
        Some("keyval") => format!("Keyval(A::constant_in(Set::Keyval, {name}))"),
        Some(group) => format!("A::constant_in(Set::{}, {name})", set_name(group)),
        None => name.to_owned(),
    }
}

/// Reading and writing back of a value that may be changed.
fn in_out(argument: &Argument) -> (String, String) {
    let (name, kind) = (&argument.name, &argument.kind);
    if kind.handle().is_some() {
        return (format!("peek({name})?.inward()"), format!("poke({name}, Handle::outward({name}_value))?;"));
    }
    if kind.base == "status" {
        return (format!("status_in::<A>({name})?"), format!("status_change::<A>({name}, &{name}_value);"));
    }
    if kind.widens() {
        return (format!("{name}.get()?"), format!("{name}.put({name}_value)?;"));
    }
    if kind.base == "keyval" {
        return (
            format!("Keyval(A::constant_in(Set::Keyval, peek({name})?))"),
            format!("poke({name}, A::constant_out(Set::Keyval, {name}_value.0))?;"),
        );
    }
    match kind.map().map(set_name) {
        Some(set) => (
            format!("A::constant_in(Set::{set}, peek({name})?)"),
            format!("poke({name}, A::constant_out(Set::{set}, {name}_value))?;"),
        ),
        None => (format!("peek({name})?"), format!("poke({name}, {name}_value)?;")),
    }
}

fn result(function: &Function, argument: &Argument, value: &str) -> String {
    let (name, kind) = (&argument.name, &argument.kind);
    if let Shape::Array { length, .. } = &kind.shape {
        let length = length_of(function, length);
        return match (kind.base.as_str(), kind.map()) {
            ("bool", _) => format!("fill_bools({name}, {length}, &{value})?;"),
            (_, Some(group)) => {
                format!("fill_constants::<A>(Set::{}, {name}, {length}, &{value})?;", set_name(group))
            }
            _ => format!("fill({name}, {length}, &{value})?;"),
        };
    }
    if kind.base == "text" {
        let limit = limit_name(kind.limit.as_deref().unwrap_or_default());
        let length = if function.arguments.iter().any(|one| one.name == "resultlen") { "resultlen" } else { "NOWHERE" };
        return format!("text_out::<A>({name}, {length}, Limit::{limit}, &{value})?;");
    }
    if kind.handle().is_some() {
        return format!("poke({name}, Handle::outward({value}))?;");
    }
    match kind.base.as_str() {
        "status" => format!("A::status_out(&{value}, {name}, false);"),
        "bool" => format!("poke({name}, c_int::from({value}))?;"),
        _ if kind.widens() && function.large => format!("{name}.put({value})?;"),
        _ => match kind.map().map(set_name) {
            Some(set) => format!("poke({name}, A::constant_out(Set::{set}, {value}))?;"),
            None => format!("poke({name}, {value})?;"),
        },
    }
}

/// The expression of an array's length.
fn length_of(function: &Function, length: &str) -> String {
    match length {
        "peers" => "lengths::peers(comm.inward())?".into(),
        "sends" => "lengths::sends::<A>(comm.inward(), sendbuf)?".into(),
        "at_root" => "lengths::at_root(comm.inward(), A::constant_in(Set::Rank, root))?".into(),
        "members" => "lengths::members(comm.inward())?".into(),
        "incoming" => "lengths::incoming(comm.inward())?".into(),
        "outgoing" => "lengths::outgoing(comm.inward())?".into(),
        "cartdims" => "lengths::cartdims(comm.inward())?".into(),
        "edge_ends" => "lengths::edges(indx)?".into(),
        other if function.arguments.iter().any(|one| one.name == other && one.kind.is_wide()) => {
            format!("lengths::of({other})?")
        }
        other => format!("lengths::of(i64::from({other}))?"),
    }
}
