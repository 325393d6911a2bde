//! Every function of MPI under its own name in lower case. The doors call these and nothing else. Only re-exports.
