//! A process that SIGKILL does not end: it waits in the kernel for a file system that was frozen, as for a disk that does not answer.

use crate::{cluster, end, job, nodes, output, submit, text, wait_for};
use pulc_testkit::{Cluster, skipped, wait_until};
use std::path::PathBuf;
use std::process::Command;

/// A file system in a file, mounted; thawed and gone in the end, whatever happens.
struct Disk {
    image: PathBuf,
    mount: PathBuf,
}

fn done(program: &str, arguments: &[&str]) -> Result<(), String> {
    let said = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    said.status.success().then_some(()).ok_or_else(|| format!("{program}: {}", String::from_utf8_lossy(&said.stderr)))
}

impl Disk {
    fn new(cluster: &Cluster) -> Result<Disk, String> {
        let at = |name: &str| cluster.directory().join(name);
        let disk = Disk { image: at("image"), mount: at("disk") };
        let file = std::fs::File::create(&disk.image).and_then(|file| file.set_len(16 << 20));
        file.and_then(|()| std::fs::create_dir(&disk.mount)).map_err(|error| error.to_string())?;
        done("mkfs.ext4", &["-q", disk.image.to_str().unwrap()])?;
        done("mount", &["-o", "loop", disk.image.to_str().unwrap(), disk.path()])?;
        Ok(disk)
    }

    fn path(&self) -> &str {
        self.mount.to_str().expect("a temporary path is text")
    }

    fn freeze(&self) -> Result<(), String> {
        done("fsfreeze", &["--freeze", self.path()])
    }

    fn thaw(&self) {
        let _ = done("fsfreeze", &["--unfreeze", self.path()]);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.thaw();
        // Who has waited for it ends now.
        wait_until(|| done("umount", &[self.path()]).ok());
    }
}

#[test]
fn what_cannot_be_killed_keeps_its_slots_and_its_node_from_new_work() {
    const NAME: &str = "what_cannot_be_killed_keeps_its_slots_and_its_node_from_new_work";
    let Some(cluster) = cluster(NAME, 2) else { return };
    let disk = match Disk::new(&cluster).and_then(|disk| disk.freeze().map(|()| disk)) {
        Ok(disk) => disk,
        Err(why) => return skipped(NAME, &format!("no file system can be frozen: {why}")),
    };
    let host = cluster.host(0);
    let names: Vec<String> = nodes(host).iter().map(|node| text(node, "name").to_owned()).collect();
    let writes = format!("echo $$ > pid; exec 3> {}/file", disk.path());
    let stuck = submit(&cluster, 0, &["-w", &names[1], "sh", "-c", &writes]);
    let waits = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", output(&cluster, "pid").trim())).ok()?;
        stat.contains(" D ").then_some(())
    };
    assert!(wait_until(waits).is_some(), "{}", job(host, &stuck));
    host.pulc(&["cancel", &stuck]).expect_success();
    let is_marked = || {
        let all = nodes(host);
        let node = all.iter().find(|node| text(node, "name") == names[1])?;
        (text(node, "state") == "draining" && text(node, "drained").contains("SIGKILL has not ended")).then_some(())
    };
    assert!(wait_until(is_marked).is_some(), "{:?}", host.pulc(&["nodes", "--queue"]));
    let pid = output(&cluster, "pid");
    let told = wait_for(host, &stuck, "COMPLETING");
    assert!(text(&told, "text").contains(&format!("process {}", pid.trim())), "{told}");
    // The rest of the cluster works on; what wants this node hears why it waits.
    let elsewhere = submit(&cluster, 0, &["true"]);
    wait_for(host, &elsewhere, "COMPLETED");
    let there = submit(&cluster, 0, &["-w", &names[1], "true"]);
    let why = wait_until(|| Some(job(host, &there)).filter(|job| text(job, "text").contains("SIGKILL has not ended")));
    assert!(why.is_some(), "{}", job(host, &there));
    // Neither daemon forgets it.
    for daemon in cluster.hosts() {
        daemon.signal_daemon(rustix::process::Signal::KILL);
        let back = wait_until(|| matches!(daemon.pulc(&["up"]).code(), Some(0 | 10)).then_some(()));
        assert!(back.is_some(), "{:?}", daemon.pulc(&["up"]));
    }
    assert!(wait_until(is_marked).is_some(), "{:?}", host.pulc(&["nodes", "--queue"]));
    assert_eq!(wait_for(host, &stuck, "COMPLETING")["number"], told["number"]);
    disk.thaw();
    wait_for(host, &stuck, "CANCELLED");
    wait_for(host, &there, "COMPLETED");
    let up = || nodes(host).iter().all(|node| text(node, "state") == "up").then_some(());
    assert!(wait_until(up).is_some(), "{:?}", host.pulc(&["nodes", "--queue"]));
    drop(disk);
    end(&cluster);
}
