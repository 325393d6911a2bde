//! The one integration binary of heat: whole runs, on threads of this process and as the built program.

mod on_threads;
mod program;
