//! What is made from the table besides code: the lists of exported symbols, the coverage page, the man pages. Called by `xtask`.

use crate::Door;
use crate::exports::profiled;
use crate::functions::{Body, Function, Functions};
use crate::headers::prototype;
use crate::kinds::Shape;
use std::fmt::Write;

/// What `libmpi.so.12` exports besides functions of the table: variables, and what MPICH's Fortran libraries ask for.
pub const MPICH_EXTRAS: [&str; 20] = [
    "MPIR_Dup_fn",
    "MPI_UNWEIGHTED",
    "MPI_WEIGHTS_EMPTY",
    "MPI_F_STATUS_IGNORE",
    "MPI_F_STATUSES_IGNORE",
    "MPI_F08_STATUS_IGNORE",
    "MPI_F08_STATUSES_IGNORE",
    "MPI_T_PVAR_ALL_HANDLES",
    "MPIR_F08_MPI_STATUS_IGNORE_OBJ",
    "MPIR_F08_MPI_STATUSES_IGNORE_OBJ",
    "MPIR_F08_MPI_IN_PLACE",
    "MPIR_F08_MPI_BOTTOM",
    "MPII_Comm_get_attr",
    "MPII_Comm_set_attr",
    "MPII_Type_get_attr",
    "MPII_Type_set_attr",
    "MPII_Win_get_attr",
    "MPII_Win_set_attr",
    "MPII_Keyval_set_proxy",
    "MPII_Grequest_set_lang_f77",
];

/// What every MPI door exports for `libpulc.so` in the same process.
const FOR_LIBPULC: &str = "pulc_door_table";

/// `abi/libmpi.symbols` or `abi/libmpi_abi.symbols`.
pub fn symbols(door: Door) -> String {
    let table = Functions::load();
    let mut names: Vec<String> = Vec::new();
    for function in table.all().filter(|function| door.has(function)) {
        for (name, _) in function.forms() {
            names.push(profiled(&name));
            names.push(name);
        }
    }
    if door == Door::Mpich {
        names.extend(MPICH_EXTRAS.map(str::to_owned));
    }
    names.push(FOR_LIBPULC.to_owned());
    names.sort();
    format!(
        "# What {} exports: a promise to compiled programs. Made from abi/mpi/*.txt by `cargo xtask mpi`.\n{}\n",
        door.library(),
        names.join("\n")
    )
}

/// `docs/reference/mpi-coverage.md`.
pub fn coverage() -> String {
    let table = Functions::load();
    let is_there = |function: &&Function| function.body != Body::Missing;
    let mut text = String::from(
        "# Which MPI functions are there\n\nMade from `abi/mpi/functions.txt` by `cargo xtask mpi`; `tidy` compares. A function counts once, its \
         large-count form and its PMPI\ntwin come with it. Every name is exported; one that is not there yet raises \
         `MPI_ERR_UNSUPPORTED_OPERATION` through the error handler\n(functions of the tool interface return it).\n\n\
         | chapter of MPI-5.0 | there | of |\n| --- | --- | --- |\n",
    );
    let (mut there, mut all) = (0, 0);
    for chapter in &table.chapters {
        let count = chapter.functions.iter().filter(is_there).count();
        let _ = writeln!(text, "| {} {} | {count} | {} |", chapter.number, chapter.title, chapter.functions.len());
        there += count;
        all += chapter.functions.len();
    }
    let _ = writeln!(text, "| all | {there} | {all} |");
    for chapter in &table.chapters {
        let _ = writeln!(text, "\n## {} {}", chapter.number, chapter.title);
        for (title, wanted) in [("There", true), ("Not there yet", false)] {
            let chosen: Vec<String> = chapter
                .functions
                .iter()
                .filter(|function| is_there(function) == wanted)
                .map(|function| format!("`{}`", function.name))
                .collect();
            if !chosen.is_empty() {
                let _ = writeln!(text, "\n{title}: {}.", chosen.join(", "));
            }
        }
    }
    text
}

/// Man pages of section 3: file name and text. A large-count form is a link to its plain one.
pub fn man_pages() -> Vec<(String, String)> {
    let table = Functions::load();
    let mut pages = Vec::new();
    for chapter in &table.chapters {
        for function in &chapter.functions {
            pages.push((format!("{}.3", function.name), man_page(function, &chapter.number, &chapter.title)));
            if function.large {
                pages.push((format!("{}_c.3", function.name), format!(".so man3/{}.3\n", function.name)));
            }
        }
    }
    pages
}

fn man_page(function: &Function, number: &str, title: &str) -> String {
    let name = &function.name;
    let mut text = format!(".TH {name} 3 \"\" \"PULC {}\" \"MPI\"\n.SH NAME\n", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "{name} \\- {}", title.to_lowercase());
    text.push_str(".SH SYNOPSIS\n.nf\n.B #include <mpi.h>\n.PP\n");
    for (form, large) in function.forms() {
        let _ = writeln!(text, "{};", prototype(function, &form, large));
    }
    text.push_str(".fi\n");
    if !function.arguments.is_empty() {
        text.push_str(".SH ARGUMENTS\n");
    }
    for argument in &function.arguments {
        let direction = match &argument.kind.shape {
            _ if argument.reads => "in",
            Shape::In => "in",
            Shape::Out => "out",
            Shape::InOut | Shape::Array { in_out: true, .. } => "in and out",
            Shape::Array { .. } => "out",
            Shape::Value if ["buffer", "text"].contains(&argument.kind.base.as_str()) => "out, or in and out",
            _ => "in",
        };
        let _ = writeln!(text, ".TP\n.I {}\n{direction}", argument.name);
    }
    text.push_str(".SH STATE\n");
    let _ = match function.body {
        Body::Missing => {
            writeln!(text, "Not there yet: raises MPI_ERR_UNSUPPORTED_OPERATION through the error handler.")
        }
        _ => writeln!(text, "There."),
    };
    if function.mpich_only {
        text.push_str("Only libmpi.so.12 (the MPICH binary interface) has it.\n");
    }
    if function.deprecated {
        text.push_str("Deprecated by the standard.\n");
    }
    text.push_str(".SH SOURCE\n");
    let _ = match function.since.as_str() {
        "-" => writeln!(text, "Not part of the MPI standard."),
        since => writeln!(text, "MPI-5.0, chapter {number} ({title}); introduced in MPI-{since}."),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_symbol_lists_hold_both_names_of_every_form_and_the_variables_of_mpich() {
        let lines = |door| symbols(door).lines().map(str::to_owned).collect::<Vec<_>>();
        let (mpich, standard) = (lines(Door::Mpich), lines(Door::Standard));
        // The two forms of every function, what libpulc.so finds our table by, and the line that heads the list.
        assert_eq!(standard.len(), 2 + 2 * 664);
        for name in ["MPI_Send", "PMPI_Send", "MPI_Send_c", "PMPI_Send_c"] {
            assert!(mpich.iter().any(|line| line == name) && standard.iter().any(|line| line == name), "{name}");
        }
        assert!(
            mpich.iter().any(|line| line == "MPI_UNWEIGHTED") && !standard.iter().any(|line| line == "MPI_UNWEIGHTED")
        );
    }

    #[test]
    fn every_function_has_a_page_that_shows_how_to_call_it() {
        let pages = man_pages();
        let (_, page) = pages.iter().find(|(name, _)| name == "MPI_Recv.3").expect("MPI_Recv has a page");
        assert!(page.contains("int MPI_Recv(void *buf, int count, ") && page.contains("MPI_Recv_c"), "{page}");
        assert!(page.contains("chapter 3"));
    }
}
