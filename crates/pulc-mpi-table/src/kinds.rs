//! Kinds of arguments: what they are in C and in Rust, in the plain and in the large-count form. A kind is a base and a shape, for
//! example `count[n]`. Called by the generators; knows nothing of single functions.

/// How an argument holds its values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shape {
    Value,
    /// Pointer to one result.
    Out,
    /// Pointer to one value that is read and may be changed.
    InOut,
    /// Pointer to one value that is only read, though C's declaration does not say so.
    In,
    Array {
        /// Another argument or one of `functions::LENGTHS`.
        length: String,
        triple: bool,
        in_out: bool,
    },
    /// `char ***` of `MPI_Init`.
    Deep,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kind {
    pub base: String,
    /// Of a text: the constant behind `MPI_MAX_` that limits it.
    pub limit: Option<String>,
    pub shape: Shape,
}

/// Bases that are `int` in C: numbers, sentinels and enumerations. Those with a map between the two ABIs name its group of
/// constants.
const INTS: &[(&str, Option<&str>)] = &[
    ("int", None),
    ("bool", None),
    ("rank", Some("rank")),
    ("tag", Some("tag")),
    ("level", Some("thread level")),
    ("split", Some("split type")),
    ("order", Some("order")),
    ("distribution", Some("distribution")),
    ("class", Some("error class")),
    ("keyval", Some("keyval")),
    ("compare", Some("comparison")),
    ("topology", Some("topology")),
    ("typeclass", Some("type class")),
    ("combiner", Some("combiner")),
    ("lock", Some("lock")),
    ("assert", Some("window assertion")),
    ("whence", Some("seek")),
    ("varclass", None),
];

pub const HANDLES: [(&str, &str); 11] = [
    ("comm", "Comm"),
    ("datatype", "Datatype"),
    ("errhandler", "Errhandler"),
    ("file", "File"),
    ("group", "Group"),
    ("info", "Info"),
    ("message", "Message"),
    ("op", "Op"),
    ("request", "Request"),
    ("session", "Session"),
    ("win", "Win"),
];

/// Handles of the tool interface, which are pointers in both ABIs.
const TOOL_HANDLES: [&str; 6] =
    ["T_enum", "T_cvar_handle", "T_pvar_handle", "T_pvar_session", "T_event_registration", "T_event_instance"];

impl Kind {
    pub fn parse(text: &str) -> Result<Kind, String> {
        let end = text.find(['*', '&', '^', '[']).unwrap_or(text.len());
        let (base, shape) = text.split_at(end);
        let (base, limit) = match base.split_once('/') {
            Some((base, limit)) => (base, Some(limit.to_owned())),
            None => (base, None),
        };
        let shape = match shape {
            "" => Shape::Value,
            "*" => Shape::Out,
            "&" => Shape::InOut,
            "^" => Shape::In,
            "***" => Shape::Deep,
            _ => {
                let inner = shape.strip_prefix('[').ok_or_else(|| format!("unknown shape {shape:?}"))?;
                let (length, rest) = inner.split_once(']').ok_or_else(|| format!("unknown shape {shape:?}"))?;
                let (triple, in_out) = match rest {
                    "" => (false, false),
                    "&" => (false, true),
                    "[3]" => (true, false),
                    _ => return Err(format!("unknown shape {shape:?}")),
                };
                Shape::Array { length: length.to_owned(), triple, in_out }
            }
        };
        let kind = Kind { base: base.to_owned(), limit, shape };
        if kind.c_base(false).is_none() { Err(format!("unknown kind {text:?}")) } else { Ok(kind) }
    }

    pub fn is_int(&self) -> bool {
        INTS.iter().any(|(name, _)| *name == self.base)
    }

    /// The group of constants whose values differ between the ABIs.
    pub fn map(&self) -> Option<&'static str> {
        INTS.iter().find(|(name, _)| *name == self.base).and_then(|(_, map)| *map)
    }

    /// `Comm` for `comm`.
    pub fn handle(&self) -> Option<&'static str> {
        HANDLES.iter().find(|(name, _)| *name == self.base).map(|(_, rust)| *rust)
    }

    pub fn is_function(&self) -> bool {
        self.base.ends_with("_function")
    }

    /// Whether the two forms of a function have different types here.
    pub fn widens(&self) -> bool {
        ["count", "displ"].contains(&self.base.as_str())
    }

    /// What it counts in: widened by every body to 64 bits.
    pub fn is_wide(&self) -> bool {
        ["count", "displ", "acount", "aint", "offset", "xcount"].contains(&self.base.as_str())
    }

    /// The C type without its shape. Texts, buffers and pointers have their star already.
    pub fn c_base(&self, large: bool) -> Option<String> {
        if self.is_int() {
            return Some("int".into());
        }
        let plain = |text: &str| Some(text.to_owned());
        match (self.base.as_str(), large) {
            ("count" | "displ", false) => plain("int"),
            ("displ" | "aint", _) | ("acount", false) => plain("MPI_Aint"),
            ("count" | "acount" | "xcount", _) => plain("MPI_Count"),
            ("offset", _) => plain("MPI_Offset"),
            ("double", _) => plain("double"),
            ("buffer" | "pointer", _) => plain("void *"),
            ("text" | "texts", _) => plain("char *"),
            ("textss", _) => plain("char **"),
            ("char", _) => plain("char"),
            ("status", _) => plain("MPI_Status"),
            ("fstatus", _) => plain("MPI_Fint"),
            ("f08status", _) => plain("MPI_F08_status"),
            ("T_cb_safety" | "T_source_order", _) => Some(format!("MPI_{}", self.base)),
            ("User_function" | "Datarep_conversion_function", true) => Some(format!("MPI_{}_c", self.base)),
            ("Grequest_poll_function" | "Grequest_wait_function", _) => Some(format!("MPIX_{}", self.base)),
            (base, _) if self.is_function() || TOOL_HANDLES.contains(&base) => Some(format!("MPI_{base}")),
            _ => self.handle().map(|handle| format!("MPI_{handle}")),
        }
    }

    /// The C declaration of an argument `name` of this kind.
    pub fn c(&self, name: &str, reads: bool, large: bool) -> String {
        let base = self.c_base(large).unwrap_or_default();
        let base = if base.ends_with('*') { base } else { format!("{base} ") };
        let constant = if reads { "const " } else { "" };
        match &self.shape {
            Shape::Array { triple: true, .. } => format!("{constant}{base}{name}[][3]"),
            Shape::Array { .. } => format!("{constant}{base}{name}[]"),
            Shape::Value if ["texts", "textss"].contains(&self.base.as_str()) => format!("{constant}{base}{name}[]"),
            Shape::Value => format!("{constant}{base}{name}"),
            Shape::Out | Shape::InOut | Shape::In => format!("{constant}{base}*{name}"),
            Shape::Deep => format!("{constant}{base}***{name}"),
        }
    }

    /// The Rust type without its shape, in exported functions.
    fn rust_base(&self, large: bool) -> String {
        if let Some(handle) = self.handle() {
            return format!("A::{handle}");
        }
        if self.is_int() {
            return "c_int".into();
        }
        match (self.base.as_str(), large) {
            ("count" | "displ", false) => "c_int",
            _ if self.is_wide() => "i64",
            ("status", _) => "A::Status",
            ("fstatus" | "f08status" | "T_cb_safety" | "T_source_order", _) => "c_int",
            ("char" | "text", _) => "c_char",
            ("texts", _) => "*mut c_char",
            ("textss", _) => "*mut *mut c_char",
            ("double", _) => "f64",
            // Buffers, functions and handles of the tool interface.
            _ => "c_void",
        }
        .to_owned()
    }

    /// The Rust type of an argument of this kind in an exported function.
    pub fn rust(&self, reads: bool, large: bool) -> String {
        let base = self.rust_base(large);
        let pointer = if reads { "*const" } else { "*mut" };
        let base =
            if base == "c_void" && TOOL_HANDLES.contains(&self.base.as_str()) { "*mut c_void".into() } else { base };
        match &self.shape {
            Shape::Array { triple: true, .. } => format!("{pointer} [{base}; 3]"),
            Shape::Deep => "*mut *mut *mut c_char".into(),
            Shape::Out if self.is_function() => "*mut c_void".into(),
            Shape::Value if ["buffer", "pointer", "text", "texts", "textss"].contains(&self.base.as_str()) => {
                format!("{pointer} {base}")
            }
            Shape::Value => base,
            _ => format!("{pointer} {base}"),
        }
    }

    /// The Rust type of an argument of this kind in a body, which serves both forms.
    pub fn body(&self, reads: bool, both: bool) -> String {
        if !self.is_wide() {
            return self.rust(reads, false);
        }
        match &self.shape {
            Shape::Value => "i64".into(),
            _ if both && self.widens() => (if reads { "InInts" } else { "OutInts" }).into(),
            _ => self.rust(reads, !self.widens() || both),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_declarations_of_each_shape_are_right() {
        let c = |kind: &str, reads, large| Kind::parse(kind).unwrap().c("x", reads, large);
        assert_eq!(c("comm", false, false), "MPI_Comm x");
        assert_eq!(c("comm*", false, false), "MPI_Comm *x");
        assert_eq!(c("buffer", true, false), "const void *x");
        assert_eq!(c("count", false, true), "MPI_Count x");
        assert_eq!(c("count[n]", true, true), "const MPI_Count x[]");
        assert_eq!(c("displ[n]", true, true), "const MPI_Aint x[]");
        assert_eq!(c("acount", false, false), "MPI_Aint x");
        assert_eq!(c("int[n][3]", false, false), "int x[][3]");
        assert_eq!(c("texts", false, false), "char *x[]");
        assert_eq!(c("textss", false, false), "char **x[]");
        assert_eq!(c("char***", false, false), "char ***x");
        assert_eq!(c("text/OBJECT_NAME", true, false), "const char *x");
        assert_eq!(c("User_function*", false, true), "MPI_User_function_c *x");
    }

    #[test]
    fn an_unknown_base_and_an_unknown_shape_are_refused() {
        assert!(Kind::parse("integer").is_err());
        assert!(Kind::parse("int**").is_err());
        assert!(Kind::parse("int[n").is_err());
    }
}
