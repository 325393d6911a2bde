//! Gives the library its SONAME and keeps it loaded once it is: another library may have found its table, and blocks outlive everything.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpulc_alloc.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
