//! The embedded daemons of this user on this machine: each `pulc run` without a daemon listens for clients under a name of its
//! own, which `pulc ps` and `pulc kill` find in the kernel's table of sockets. Nothing is kept anywhere else. Starts nothing.

use std::io;

/// Where the sockets of this network namespace are listed.
const TABLE: &str = "/proc/net/unix";

/// Abstract address (without the leading NUL byte) for one more embedded daemon of user `uid`; `number` tells them apart.
pub fn embedded_name(uid: u32, number: u64) -> String {
    format!("{}{number:016x}", prefix(uid))
}

/// Addresses of the embedded daemons that now listen as user `uid` says. Anybody may take such a name: whoever connects
/// has to look whose it is, as [`crate::Client::connect`] does.
pub fn embedded_names(uid: u32) -> io::Result<Vec<String>> {
    Ok(listeners(&std::fs::read_to_string(TABLE)?, &prefix(uid)))
}

fn prefix(uid: u32) -> String {
    format!("pulc-run-{uid}-")
}

/// Names in a table with the columns: address, references, protocol, flags, type, state, inode, name. A listener has the flag
/// `SO_ACCEPTCON` (0x10000).
fn listeners(table: &str, prefix: &str) -> Vec<String> {
    let name = |line: &str| {
        let mut columns = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(columns.nth(3)?, 16).ok()?;
        let name = columns.nth(3)?.strip_prefix('@')?;
        (flags & 0x1_0000 != 0 && name.starts_with(prefix)).then(|| name.to_owned())
    };
    table.lines().skip(1).filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listeners_of_this_user_are_found() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path
ffff: 00000002 00000000 00010000 0001 01 11 @pulc-run-7-00000000000000aa
ffff: 00000003 00000000 00000000 0001 03 12 @pulc-run-7-00000000000000aa
ffff: 00000002 00000000 00010000 0001 01 13 @pulc-run-77-00000000000000bb
ffff: 00000002 00000000 00010000 0001 01 14 /run/pulc-run-7-00000000000000cc
ffff: 00000003 00000000 00000000 0001 03 15
";
        assert_eq!(listeners(table, &prefix(7)), [embedded_name(7, 0xaa)]);
    }
}
