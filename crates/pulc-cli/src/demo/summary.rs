//! What the three runs of the demo add up to: the table, the checks, the verdict. Pure text from reports.

use super::stage::{Screen, Stage};
use pulc_heat::exchange::Traffic;
use pulc_heat::report::{Report, amount};
use pulc_heat::verify::MODE_ERROR_MAX;

/// The table, heading first.
pub fn table(stages: &[Stage], reports: &[Report], screen: &Screen) -> Vec<String> {
    let heading = format!(
        "{:<10}{:>5} {:>9} {:>9} {:>10}  {:>15} {:>15}",
        "", "ranks", "time", "speed-up", "efficiency", "shared memory", "network"
    );
    // Against one process alone on the same plate, where there was one.
    let serial = |of: &Report| {
        let same = |report: &&Report| plate(report) == plate(of) && report.ranks == 1;
        reports.iter().find(same).map_or(f64::NAN, |report| report.seconds)
    };
    let row = |(stage, report): (&Stage, &Report)| {
        let gain = serial(report) / report.seconds;
        let number = |value: f64, digits: usize| if value.is_nan() { "-".into() } else { format!("{value:.digits$}") };
        format!(
            "{:<10}{:>5} {:>7.2} s {:>9} {:>8} %  {:>15} {:>15}",
            stage.name,
            report.ranks,
            report.seconds,
            number(gain, 2),
            number(100.0 * gain / report.ranks as f64, 0),
            moved(report, "shm"),
            moved(report, "udp")
        )
    };
    let caption = format!("{:>79}", "(messages / bytes that all ranks sent)");
    let rows = stages.iter().zip(reports).map(row);
    std::iter::once(screen.bold(&heading)).chain(rows).chain(std::iter::once(caption)).collect()
}

/// "messages / bytes" of one device.
fn moved(report: &Report, device: &str) -> String {
    match report.traffic.iter().find(|traffic| traffic.device == device) {
        Some(Traffic { messages, bytes, .. }) => format!("{messages} / {}", amount(*bytes)),
        None => "-".into(),
    }
}

/// What makes two fields comparable.
fn plate(report: &Report) -> (usize, usize, u64) {
    (report.width, report.height, report.steps)
}

/// What must hold for the demo to have succeeded.
///
/// # Errors
/// In words, what does not hold.
pub fn check(reports: &[Report]) -> Result<(), String> {
    if reports.is_empty() {
        return Err("there is no result".into());
    }
    for report in reports {
        let first = reports.iter().find(|first| plate(first) == plate(report)).unwrap_or(report);
        if report.hash != first.hash {
            let (ranks, others) = (first.ranks, report.ranks);
            return Err(format!("the fields differ: {} with {ranks} ranks, {} with {others}", first.hash, report.hash));
        }
        let checks = report.verification.as_ref().ok_or("a run was not verified")?;
        if let Some(why) = checks.failure() {
            return Err(why);
        }
        if checks.mode_error.is_none() || checks.sum_drift.is_none() {
            return Err("a check was left out".into());
        }
    }
    let sent = |report: &Report, device: &str| report.traffic.iter().any(|traffic| traffic.device == device);
    if let Some(report) = reports.iter().find(|report| report.nodes > 1 && !sent(report, "udp")) {
        return Err(format!("the run on {} nodes sent nothing over the network", report.nodes));
    }
    Ok(())
}

/// What was checked, in words.
pub fn verdict(reports: &[Report], cores: usize, ranks: u32) -> Vec<String> {
    let checks = || reports.iter().filter_map(|report| report.verification.as_ref());
    let worst = checks().filter_map(|checks| checks.mode_error).fold(0.0, f64::max);
    let drift = checks().filter_map(|checks| checks.sum_drift).fold(0.0, f64::max);
    let hash = reports.first().map_or("", |report| &report.hash);
    let mut lines = vec![
        String::new(),
        format!("identical    all {} fields, bit for bit: {hash}", reports.len()),
        format!("exact decay  slowest mode off by {worst:.1e} (allowed {MODE_ERROR_MAX:.0e})"),
        format!("conserved    heat of the insulated plate changed by {drift:.1e}"),
    ];
    if cores == 1 {
        lines.push("one core     the ranks share the only core of this machine: there is no speed-up to see".into());
    } else if (ranks as usize) > cores {
        lines.push(format!("few cores    {ranks} ranks share {cores} cores: more ranks cannot be faster"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulc_heat::verify::Verification;

    fn report(ranks: usize, nodes: usize, hash: &str) -> Report {
        let udp = Traffic { device: "udp".into(), messages: 7, bytes: 4096 };
        Report {
            program: "heat".into(),
            width: 8,
            height: 8,
            steps: 1,
            r: 0.25,
            ranks,
            nodes,
            decomposition: [ranks, 1],
            seconds: 2.0 / ranks as f64,
            cells_per_second: 1.0,
            hash: hash.into(),
            traffic: if nodes > 1 { vec![udp] } else { Vec::new() },
            verification: Some(Verification {
                mode_error: Some(1e-15),
                mode_steps: Some(1),
                sum_drift: Some(0.0),
                sum_drift_max: Some(1e-9),
            }),
            png: None,
            gif: None,
        }
    }

    #[test]
    fn fields_that_differ_fail_the_demo() {
        assert!(check(&[report(1, 1, "a"), report(2, 2, "a")]).is_ok());
        assert!(check(&[report(1, 1, "a"), report(2, 2, "b")]).unwrap_err().contains("the fields differ"));
    }

    #[test]
    fn a_check_that_failed_or_was_left_out_fails_the_demo() {
        let mut wrong = report(2, 1, "a");
        wrong.verification = Some(Verification { mode_error: Some(1e-3), ..Verification::default() });
        assert!(check(&[report(1, 1, "a"), wrong.clone()]).is_err());
        wrong.verification = Some(Verification::default());
        assert!(check(&[wrong.clone()]).unwrap_err().contains("left out"));
        wrong.verification = None;
        assert!(check(&[wrong]).is_err());
    }

    #[test]
    fn two_nodes_that_never_used_the_network_fail_the_demo() {
        let mut cheat = report(2, 2, "a");
        cheat.traffic.clear();
        assert!(check(&[cheat]).unwrap_err().contains("nothing over the network"));
    }
}
