//! The environment that ranks start with: the caller's, the keeper's own names, where our libraries stand, and what makes ordinary
//! programs hand a core over faster. Called by `launch`, the last part also by `pulc bypass`; must never take one of the keeper's names over from the caller.

use super::broker::Seat;
use super::launch::hex;
use super::message::Prepare;
use pulc_base::boot::{
    ENV_COOKIE, ENV_JOBID, ENV_KEEPER, ENV_LOCAL_RANK, ENV_LOCAL_SIZE, ENV_MPI, ENV_NODE, ENV_RANK, ENV_SIZE,
};
use std::ffi::CString;

/// Names that the keeper gives to its ranks and never takes over from the caller's environment.
const OWN_NAMES: [&str; 8] =
    [ENV_KEEPER, ENV_COOKIE, ENV_RANK, ENV_SIZE, ENV_JOBID, ENV_NODE, ENV_LOCAL_RANK, ENV_LOCAL_SIZE];

const LIBRARIES: &[u8] = b"LD_LIBRARY_PATH";
/// What the C library takes its tunables from, and the one that says whether it registers each thread for restartable sequences. The
/// kernel writes into a registered thread's memory at each change to it, a tenth of what handing over a core takes (ADR 6).
/// Programs that need such sequences find none registered and register their own.
pub const TUNABLES: &[u8] = b"GLIBC_TUNABLES";
const RSEQ: &[u8] = b"glibc.pthread.rseq";

/// What all ranks of this node get: the caller's environment, and what the keeper adds to it.
pub fn shared_environment(order: &Prepare, name: &str, node: u32) -> Vec<CString> {
    let theirs = &order.launch.env;
    let native = theirs.iter().any(|(key, value)| key == ENV_MPI.as_bytes() && value == b"native");
    let mut all = passed_on(theirs, own_libraries().filter(|_| !native));
    let own = [
        (ENV_KEEPER, name.to_owned()),
        (ENV_SIZE, order.total.to_string()),
        (ENV_JOBID, order.job.to_string()),
        (ENV_NODE, node.to_string()),
        (ENV_LOCAL_SIZE, order.count.to_string()),
    ];
    all.extend(own.into_iter().map(|(key, value)| format!("{key}={value}").into_bytes()));
    all.into_iter().filter_map(|entry| CString::new(entry).ok()).collect()
}

/// What one rank gets beside it.
pub fn own_environment(seat: &Seat, local: usize) -> Vec<CString> {
    let own = [(ENV_RANK, seat.rank.to_string()), (ENV_LOCAL_RANK, local.to_string()), (ENV_COOKIE, hex(&seat.cookie))];
    own.into_iter().filter_map(|(key, value)| CString::new(format!("{key}={value}")).ok()).collect()
}

/// The caller's environment with our libraries first on their path, and with the tunable unless the caller has set it.
fn passed_on(theirs: &[(Vec<u8>, Vec<u8>)], libraries: Option<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::with_capacity(theirs.len() + 8);
    let (mut seen_libraries, mut seen_tunables) = (false, false);
    for (key, value) in theirs {
        if OWN_NAMES.iter().any(|own| own.as_bytes() == key) {
            continue;
        }
        match &libraries {
            Some(ours) if key == LIBRARIES => {
                seen_libraries = true;
                all.push([key, &b"="[..], ours, b":", value].concat());
            }
            _ if key == TUNABLES => {
                seen_tunables = true;
                all.push([key, &b"="[..], &without_sequences(value)].concat());
            }
            _ => all.push([key, &b"="[..], value].concat()),
        }
    }
    if let Some(ours) = libraries.filter(|_| !seen_libraries) {
        all.push([LIBRARIES, b"=", &ours].concat());
    }
    if !seen_tunables {
        all.push([TUNABLES, b"=", &without_sequences(b"")].concat());
    }
    all
}

/// These tunables and ours, unless they say themselves what becomes of it.
pub fn without_sequences(tunables: &[u8]) -> Vec<u8> {
    let says_so = |one: &[u8]| one.strip_prefix(RSEQ).is_some_and(|rest| rest.first() == Some(&b'='));
    if tunables.split(|byte| *byte == b':').any(says_so) {
        return tunables.to_vec();
    }
    let separator: &[u8] = if tunables.is_empty() { b"" } else { b":" };
    [tunables, separator, RSEQ, b"=0"].concat()
}

/// The directory `lib` beside the `bin` in which this binary stands, if it is there.
fn own_libraries() -> Option<Vec<u8>> {
    let binary = std::fs::read_link("/proc/self/exe").ok()?;
    let lib = binary.parent()?.parent()?.join("lib");
    let has_bin = binary.parent()?.file_name()? == "bin";
    (has_bin && lib.join("libpulc.so").exists()).then(|| lib.into_os_string().into_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(theirs: &[(&str, &str)], libraries: Option<&str>) -> Vec<String> {
        let theirs: Vec<_> =
            theirs.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
        let all = passed_on(&theirs, libraries.map(|path| path.as_bytes().to_vec()));
        all.into_iter().map(|entry| String::from_utf8(entry).unwrap()).collect()
    }

    #[test]
    fn ranks_get_the_callers_environment_but_never_the_keepers_names_out_of_it() {
        let all = passed(&[("HOME", "/h"), (ENV_RANK, "7")], None);
        assert_eq!(all, ["HOME=/h", "GLIBC_TUNABLES=glibc.pthread.rseq=0"]);
    }

    #[test]
    fn our_libraries_stand_before_the_callers() {
        let all = passed(&[("LD_LIBRARY_PATH", "/theirs")], Some("/ours"));
        assert_eq!(all, ["LD_LIBRARY_PATH=/ours:/theirs", "GLIBC_TUNABLES=glibc.pthread.rseq=0"]);
        let all = passed(&[], Some("/ours"));
        assert_eq!(all, ["LD_LIBRARY_PATH=/ours", "GLIBC_TUNABLES=glibc.pthread.rseq=0"]);
    }

    #[test]
    fn whoever_sets_tunables_keeps_them_and_has_the_last_word() {
        let tuned = |value| passed(&[("GLIBC_TUNABLES", value)], None).remove(0);
        assert_eq!(tuned("glibc.malloc.check=1"), "GLIBC_TUNABLES=glibc.malloc.check=1:glibc.pthread.rseq=0");
        assert_eq!(tuned("glibc.pthread.rseq=1"), "GLIBC_TUNABLES=glibc.pthread.rseq=1");
        assert_eq!(tuned("a=1:glibc.pthread.rseq=1:b=2"), "GLIBC_TUNABLES=a=1:glibc.pthread.rseq=1:b=2");
    }
}
