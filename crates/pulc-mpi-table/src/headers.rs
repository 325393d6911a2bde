//! Text of the two C headers, `abi/mpi/include/mpich/mpi.h` and `abi/mpi/include/mpi_abi/mpi.h`. Called by `xtask`, which writes them,
//! and by `tidy`, which compares what is committed.

use crate::Door;
use crate::constants::{Constant, Constants, Value};
use crate::functions::{Function, Functions};
use crate::kinds::HANDLES;
use std::fmt::Write;

pub fn generate(door: Door) -> String {
    let mut text = String::new();
    head(&mut text, door);
    types(&mut text, door);
    constants(&mut text, door);
    callbacks(&mut text, door);
    functions(&mut text, door);
    text.push_str("#if defined(__cplusplus)\n}\n#endif\n\n#endif\n");
    text
}

fn guard(door: Door) -> &'static str {
    match door {
        Door::Mpich => "PULC_MPICH_MPI_H",
        Door::Standard => "PULC_MPI_ABI_MPI_H",
    }
}

fn head(text: &mut String, door: Door) {
    let (interface, wrapper) = match door {
        Door::Mpich => ("the MPICH application binary interface", "mpicc"),
        Door::Standard => ("the standard application binary interface (MPI-5.0, chapter 20)", "mpicc_abi"),
    };
    let library = door.library();
    let _ = writeln!(text, "/* mpi.h of PULC for {interface}: what {library} offers.");
    let _ = writeln!(
        text,
        " * Made from the tables in abi/mpi by `cargo xtask mpi`; `{wrapper}` finds it. SPDX-License-Identifier: MIT OR Apache-2.0 */"
    );
    let _ = writeln!(text, "#ifndef {0}\n#define {0}\n\n#include <stdint.h>\n", guard(door));
    text.push_str("#if defined(__cplusplus)\nextern \"C\" {\n#endif\n\n#define PULC_MPI 1\n\n");
}

fn types(text: &mut String, door: Door) {
    match door {
        Door::Mpich => {
            text.push_str("typedef long MPI_Aint;\ntypedef long long MPI_Count;\ntypedef long long MPI_Offset;\n");
            text.push_str("typedef int MPI_Fint;\n\n");
            for (_, handle) in HANDLES.iter().filter(|(_, handle)| *handle != "File") {
                let _ = writeln!(text, "typedef int MPI_{handle};");
            }
            text.push_str(
                "typedef struct PULC_MPI_File *MPI_File;\n\ntypedef struct MPI_Status {\n    int count_lo;\n",
            );
            text.push_str("    int count_hi_and_cancelled;\n    int MPI_SOURCE;\n    int MPI_TAG;\n    int MPI_ERROR;\n} MPI_Status;\n\n");
            text.push_str(
                "typedef struct MPI_F08_status {\n    MPI_Fint count_lo;\n    MPI_Fint count_hi_and_cancelled;\n",
            );
            text.push_str(
                "    MPI_Fint MPI_SOURCE;\n    MPI_Fint MPI_TAG;\n    MPI_Fint MPI_ERROR;\n} MPI_F08_status;\n\n",
            );
            text.push_str("extern MPI_Fint *MPI_F_STATUS_IGNORE;\nextern MPI_Fint *MPI_F_STATUSES_IGNORE;\n");
            text.push_str(
                "extern MPI_F08_status *MPI_F08_STATUS_IGNORE;\nextern MPI_F08_status *MPI_F08_STATUSES_IGNORE;\n\n",
            );
        }
        Door::Standard => {
            text.push_str("typedef intptr_t MPI_Aint;\ntypedef int64_t MPI_Count;\ntypedef int64_t MPI_Offset;\n\n");
            for (_, handle) in HANDLES {
                let _ = writeln!(text, "typedef struct MPI_ABI_{handle} *MPI_{handle};");
            }
            text.push_str("\ntypedef struct MPI_Status {\n    int MPI_SOURCE;\n    int MPI_TAG;\n    int MPI_ERROR;\n");
            text.push_str("    int MPI_internal[5];\n} MPI_Status;\n\n");
        }
    }
    for handle in ["enum", "cvar_handle", "pvar_handle", "pvar_session", "event_registration", "event_instance"] {
        let _ = writeln!(text, "typedef struct PULC_MPI_T_{handle} *MPI_T_{handle};");
    }
    text.push('\n');
}

fn constants(text: &mut String, door: Door) {
    for group in &Constants::load().groups {
        let _ = writeln!(text, "/* {} */", group.name);
        if let Some(name) = match group.name.as_str() {
            "tool safety" => Some("MPI_T_cb_safety"),
            "tool order" => Some("MPI_T_source_order"),
            _ => None,
        } {
            let _ = writeln!(text, "typedef enum {name} {{");
            for constant in &group.constants {
                let _ =
                    writeln!(text, "    {} = {},", constant.name, constant.value(door).number().unwrap_or_default());
            }
            let _ = writeln!(text, "}} {name};");
        } else {
            for constant in &group.constants {
                define(text, &group.name, constant, door);
            }
        }
        text.push('\n');
    }
}

fn define(text: &mut String, group: &str, constant: &Constant, door: Door) {
    let c = c_type(group, &constant.name);
    match constant.value(door) {
        Value::None => {}
        Value::Data => {
            let _ = writeln!(text, "extern {c}const {};", constant.name);
        }
        Value::Symbol(symbol) => {
            let _ = writeln!(text, "#define {} (({c}){symbol})", constant.name);
        }
        Value::Number { text: number, .. } if !c.is_empty() => {
            let _ = writeln!(text, "#define {} (({c}){number})", constant.name);
        }
        Value::Number { text: number, .. } => {
            let _ = writeln!(text, "#define {} ({number})", constant.name);
        }
    }
}

/// What a constant is cast to; nothing for plain integers.
fn c_type(group: &str, name: &str) -> String {
    if let Some((_, handle)) = HANDLES.iter().find(|(base, _)| *base == group) {
        return format!("MPI_{handle}");
    }
    let function = |name: &str| {
        let object = ["Comm", "Type", "Win"]
            .into_iter()
            .find(|object| name.starts_with(&format!("MPI_{}_", object.to_uppercase())));
        match (object, name.contains("DELETE")) {
            (None, false) => "MPI_Copy_function *".to_owned(),
            (None, true) => "MPI_Delete_function *".to_owned(),
            (Some(object), false) => format!("MPI_{object}_copy_attr_function *"),
            (Some(object), true) => format!("MPI_{object}_delete_attr_function *"),
        }
    };
    match (group, name) {
        ("address", _) => "void *".into(),
        ("offset", _) => "MPI_Offset".into(),
        ("ignored", "MPI_ARGV_NULL") => "char **".into(),
        ("ignored", "MPI_ARGVS_NULL") => "char ***".into(),
        ("ignored", "MPI_STATUS_IGNORE" | "MPI_STATUSES_IGNORE") => "MPI_Status *".into(),
        ("ignored", _) => "int *".into(),
        ("null function", "MPI_CONVERSION_FN_NULL") => "MPI_Datarep_conversion_function *".into(),
        ("null function", "MPI_CONVERSION_FN_NULL_C") => "MPI_Datarep_conversion_function_c *".into(),
        ("null function", name) => function(name),
        ("tool handle", "MPI_T_ENUM_NULL") => "MPI_T_enum".into(),
        ("tool handle", "MPI_T_CVAR_HANDLE_NULL") => "MPI_T_cvar_handle".into(),
        ("tool handle", "MPI_T_PVAR_SESSION_NULL") => "MPI_T_pvar_session".into(),
        ("tool handle", "MPI_T_PVAR_ALL_HANDLES" | "MPI_T_PVAR_HANDLE_NULL") => "MPI_T_pvar_handle ".into(),
        _ => String::new(),
    }
}

const CALLBACKS: &str = "\
typedef void (MPI_User_function)(void *invec, void *inoutvec, int *len, MPI_Datatype *datatype);
typedef void (MPI_User_function_c)(void *invec, void *inoutvec, MPI_Count *len, MPI_Datatype *datatype);
typedef int (MPI_Copy_function)(MPI_Comm comm, int keyval, void *extra_state, void *value_in, void *value_out, int *flag);
typedef int (MPI_Delete_function)(MPI_Comm comm, int keyval, void *value, void *extra_state);
typedef int (MPI_Comm_copy_attr_function)(MPI_Comm comm, int keyval, void *extra_state, void *value_in, void *value_out, int *flag);
typedef int (MPI_Comm_delete_attr_function)(MPI_Comm comm, int keyval, void *value, void *extra_state);
typedef int (MPI_Type_copy_attr_function)(MPI_Datatype type, int keyval, void *extra_state, void *value_in, void *value_out, int *flag);
typedef int (MPI_Type_delete_attr_function)(MPI_Datatype type, int keyval, void *value, void *extra_state);
typedef int (MPI_Win_copy_attr_function)(MPI_Win win, int keyval, void *extra_state, void *value_in, void *value_out, int *flag);
typedef int (MPI_Win_delete_attr_function)(MPI_Win win, int keyval, void *value, void *extra_state);
typedef void (MPI_Comm_errhandler_function)(MPI_Comm *comm, int *error_code, ...);
typedef void (MPI_File_errhandler_function)(MPI_File *file, int *error_code, ...);
typedef void (MPI_Session_errhandler_function)(MPI_Session *session, int *error_code, ...);
typedef void (MPI_Win_errhandler_function)(MPI_Win *win, int *error_code, ...);
typedef MPI_Comm_errhandler_function MPI_Comm_errhandler_fn;
typedef MPI_File_errhandler_function MPI_File_errhandler_fn;
typedef MPI_Session_errhandler_function MPI_Session_errhandler_fn;
typedef MPI_Win_errhandler_function MPI_Win_errhandler_fn;
typedef int (MPI_Grequest_query_function)(void *extra_state, MPI_Status *status);
typedef int (MPI_Grequest_free_function)(void *extra_state);
typedef int (MPI_Grequest_cancel_function)(void *extra_state, int complete);
typedef int (MPI_Datarep_extent_function)(MPI_Datatype datatype, MPI_Aint *extent, void *extra_state);
typedef int (MPI_Datarep_conversion_function)(void *userbuf, MPI_Datatype datatype, int count, void *filebuf, MPI_Offset position, void *extra_state);
typedef int (MPI_Datarep_conversion_function_c)(void *userbuf, MPI_Datatype datatype, MPI_Count count, void *filebuf, MPI_Offset position, void *extra_state);
typedef void (MPI_T_event_cb_function)(MPI_T_event_instance event_instance, MPI_T_event_registration event_registration, MPI_T_cb_safety cb_safety, void *user_data);
typedef void (MPI_T_event_free_cb_function)(MPI_T_event_registration event_registration, MPI_T_cb_safety cb_safety, void *user_data);
typedef void (MPI_T_event_dropped_cb_function)(MPI_Count count, MPI_T_event_registration event_registration, int source_index, MPI_T_cb_safety cb_safety, void *user_data);
";

const MPICH_CALLBACKS: &str = "\
typedef MPI_Comm_errhandler_function MPI_Handler_function;
typedef int (MPIX_Grequest_poll_function)(void *extra_state, MPI_Status *status);
typedef int (MPIX_Grequest_wait_function)(int count, void **array_of_states, double timeout, MPI_Status *status);
int MPIR_Dup_fn(MPI_Comm comm, int keyval, void *extra_state, void *value_in, void *value_out, int *flag);
";

fn callbacks(text: &mut String, door: Door) {
    text.push_str(CALLBACKS);
    if door == Door::Mpich {
        text.push_str(MPICH_CALLBACKS);
    }
    text.push('\n');
}

fn functions(text: &mut String, door: Door) {
    for chapter in &Functions::load().chapters {
        let functions: Vec<&Function> = chapter.functions.iter().filter(|function| door.has(function)).collect();
        if functions.is_empty() {
            continue;
        }
        let _ = writeln!(text, "/* {} {} */", chapter.number, chapter.title);
        for prefix in ["", "P"] {
            for function in &functions {
                for (name, large) in function.forms() {
                    let _ = writeln!(text, "{};", prototype(function, &format!("{prefix}{name}"), large));
                }
            }
        }
        text.push('\n');
    }
}

/// The C prototype of `function` under the exported `name`.
pub fn prototype(function: &Function, name: &str, large: bool) -> String {
    let result = match &function.result {
        None => "int".into(),
        Some(kind) => kind.c_base(large).unwrap_or_default(),
    };
    let mut arguments: Vec<String> = function
        .arguments
        .iter()
        .map(|argument| argument.kind.c(&argument.name, argument.reads && argument.kind.base != "fortran", large))
        .collect();
    if function.variadic {
        arguments.push("...".into());
    }
    if arguments.is_empty() {
        arguments.push("void".into());
    }
    format!("{result} {name}({})", arguments.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_hold_handles_prototypes_and_twins() {
        let mpich = generate(Door::Mpich);
        let standard = generate(Door::Standard);
        assert!(mpich.contains("#define MPI_COMM_WORLD ((MPI_Comm)0x44000000)"));
        assert!(standard.contains("#define MPI_COMM_WORLD ((MPI_Comm)0x101)"));
        assert!(
            mpich.contains("extern int *const MPI_UNWEIGHTED;")
                && standard.contains("#define MPI_UNWEIGHTED ((int *)10)")
        );
        assert!(mpich.contains("#define MPI_COMM_DUP_FN ((MPI_Comm_copy_attr_function *)MPIR_Dup_fn)"));
        let send =
            "PMPI_Send_c(const void *buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm);";
        assert!(mpich.contains(send) && standard.contains(send));
        assert!(mpich.contains("int MPI_Pcontrol(int level, ...);"));
        assert!(mpich.contains("MPI_Fint *f_status") && !standard.contains("MPI_Fint"));
    }
}
