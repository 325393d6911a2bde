//! Gives the library its SONAME and keeps it loaded once it is: programs hold its functions for ever.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpulc_sockets.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
