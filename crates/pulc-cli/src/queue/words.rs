//! Times, durations, lists and tables as the queue's commands read and write them. Pure.

use pulc_control::Host;
use pulc_control::queue::{After, Dependency, Millis};
use std::time::SystemTime;

pub fn now() -> Millis {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64)
}

/// Milliseconds of `30` (minutes, as in other systems), `90s`, `15m`, `2h`, `3d`, `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM`, `D-HH:MM:SS`; none
/// for `unlimited`.
pub fn limit_ms(text: &str) -> Result<Option<u64>, String> {
    if matches!(text, "unlimited" | "infinite" | "UNLIMITED" | "INFINITE") {
        return Ok(None);
    }
    duration_ms(text, 60).map(Some)
}

/// The same, where a plain number has another unit.
pub fn duration_ms(text: &str, unit_s: u64) -> Result<u64, String> {
    let bad = || format!("{text:?} is no time; write 30 or 30m, 90s, 2h, 3d, HH:MM:SS or D-HH:MM");
    let number = |text: &str| text.parse::<u64>().ok().filter(|value| *value < 1 << 32).ok_or_else(bad);
    for (suffix, seconds) in [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)] {
        if let Some(value) = text.strip_suffix(suffix) {
            let value: f64 = value.parse().map_err(|_| bad())?;
            return if (0.0..1e9).contains(&value) { Ok((value * seconds as f64 * 1000.0) as u64) } else { Err(bad()) };
        }
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (number(days)?, rest),
        None => (0, text),
    };
    let parts = rest.split(':').map(number).collect::<Result<Vec<u64>, String>>()?;
    let seconds = match (text.contains('-'), &parts[..]) {
        (true, [hours]) => hours * 3600,
        (true, [hours, minutes]) => hours * 3600 + minutes * 60,
        (false, [value]) => value * unit_s,
        (false, [minutes, seconds]) => minutes * 60 + seconds,
        (_, [hours, minutes, seconds]) => hours * 3600 + minutes * 60 + seconds,
        _ => return Err(bad()),
    };
    Ok((days * 86_400 + seconds) * 1000)
}

/// A moment: `now`, `now+2h`, `18:30` (the next one, UTC), `2031-05-04T18:30[:00]` (UTC), or seconds since 1970 behind `@`.
pub fn moment(text: &str, now: Millis) -> Result<Millis, String> {
    let bad =
        || format!("{text:?} is no moment; write now+2h, 18:30 or 2031-05-04T18:30 (both UTC), or @SECONDS since 1970");
    if text == "now" {
        return Ok(now);
    }
    if let Some(wait) = text.strip_prefix("now+") {
        return Ok(now + duration_ms(wait, 1)?);
    }
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds.parse::<u64>().ok().and_then(|seconds| seconds.checked_mul(1000)).ok_or_else(bad);
    }
    let number = |text: &str| text.parse::<u64>().map_err(|_| bad());
    let time = |text: &str| -> Result<u64, String> {
        let parts = text.split(':').map(number).collect::<Result<Vec<u64>, String>>()?;
        match parts[..] {
            [h, m] if h < 24 && m < 60 => Ok(h * 3600 + m * 60),
            [h, m, s] if h < 24 && m < 60 && s < 60 => Ok(h * 3600 + m * 60 + s),
            _ => Err(bad()),
        }
    };
    const DAY: u64 = 86_400;
    if let Some((date, clock)) = text.split_once('T') {
        let parts = date.split('-').map(number).collect::<Result<Vec<u64>, String>>()?;
        let [year, month, day] = parts[..] else { return Err(bad()) };
        if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return Err(bad());
        }
        return Ok((days_before(year, month, day) * DAY + time(clock)?) * 1000);
    }
    let seconds = time(text)?;
    let today = now / 1000 / DAY * DAY;
    let at = (today + seconds) * 1000;
    Ok(if at > now { at } else { at + DAY * 1000 })
}

/// Days from 1970 to a date. Source: H. Hinnant, chrono-compatible low-level date algorithms.
fn days_before(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let of_era = year % 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// `2031-05-04T18:30:00` (UTC).
pub fn date(at: Millis) -> String {
    let (days, seconds) = (at / 86_400_000, at / 1000 % 86_400);
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// `1-02:03:04`, `2:03:04`, or `3:04`.
pub fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes, rest) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{rest:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{rest:02}"),
        _ => format!("{days}-{hours:02}:{minutes:02}:{rest:02}"),
    }
}

/// `0-9`, `1,3,5-7`, `0-20:5`, each with `%4` behind it for at most four at once.
pub fn array(text: &str) -> Result<pulc_control::queue::Array, String> {
    const INDICES_MAX: u32 = 10_000;
    let bad = || format!("{text:?} is no array; write 0-9, 1,3,5-7, 0-20:5, and %4 behind it for at most 4 at once");
    let (list, at_once) = match text.split_once('%') {
        Some((list, at_once)) => (list, Some(at_once.parse::<u32>().map_err(|_| bad())?)),
        None => (text, None),
    };
    let mut indices = Vec::new();
    for part in list.split(',') {
        let (range, step) = match part.split_once(':') {
            Some((range, step)) => (range, step.parse::<u32>().ok().filter(|step| *step > 0).ok_or_else(bad)?),
            None => (part, 1),
        };
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (from.parse::<u32>().map_err(|_| bad())?, to.parse::<u32>().map_err(|_| bad())?);
        if to < from || (to - from) / step >= INDICES_MAX || indices.len() as u32 > INDICES_MAX {
            return Err(format!("{text:?} has no, or too many, indices; an array has from 1 to {INDICES_MAX} tasks"));
        }
        indices.extend((from..=to).step_by(step as usize));
    }
    Ok(pulc_control::queue::Array { indices, at_most_at_once: at_once })
}

#[derive(Clone, Debug)]
pub struct Dependencies(pub Vec<Dependency>);

/// `ok:17:18,any:19`.
pub fn after(text: &str) -> Result<Dependencies, String> {
    let bad = || format!("{text:?} names no jobs; write ok:17, any:17, notok:17 or start:17, several with commas");
    let mut all = Vec::new();
    for part in text.split(',') {
        let mut parts = part.split(':');
        let kind = match parts.next().unwrap_or_default() {
            "ok" | "afterok" => After::Ok,
            "any" | "afterany" => After::Any,
            "notok" | "afternotok" => After::NotOk,
            "start" | "after" => After::Start,
            _ => return Err(bad()),
        };
        let before = all.len();
        for job in parts {
            all.push(Dependency { kind, on: job.parse()? });
        }
        if all.len() == before {
            return Err(bad());
        }
    }
    Ok(Dependencies(all))
}

/// Mebibytes of `500M`, `4G`, `1T`, or of a plain number.
pub fn memory_mib(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is no amount of memory; write 500M, 4G or 1T");
    let upper = text.trim().trim_end_matches(['B', 'b']).trim_end_matches('i').to_ascii_uppercase();
    let (digits, unit) = match upper.char_indices().next_back() {
        Some((at, 'K')) => (&upper[..at], 1.0 / 1024.0),
        Some((at, 'M')) => (&upper[..at], 1.0),
        Some((at, 'G')) => (&upper[..at], 1024.0),
        Some((at, 'T')) => (&upper[..at], 1024.0 * 1024.0),
        _ => (upper.as_str(), 1.0),
    };
    let value: f64 = digits.parse().map_err(|_| bad())?;
    if (0.0..1e12).contains(&value) { Ok((value * unit).ceil() as u64) } else { Err(bad()) }
}

/// Columns as wide as their longest entry; the last one as it comes.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let entries = rows.iter().map(|row| row[column].chars().count());
        entries.chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut text = line(head.to_vec());
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

/// `NAME`, or `NAME:N` for N ranks there.
pub fn host(text: &str) -> Result<Host, String> {
    match text.split_once(':') {
        None => Ok(Host { name: text.to_owned(), ranks: None }),
        Some((name, ranks)) => match ranks.parse() {
            Ok(count) if count > 0 => Ok(Host { name: name.to_owned(), ranks: Some(count) }),
            _ => Err("a node is NAME or NAME:N with N of 1 or more".to_owned()),
        },
    }
}

/// Networks with commas between them, as they were said.
pub fn networks(text: &str) -> Result<String, String> {
    pulc_control::network::parse(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_other_systems_write_them() {
        for (text, seconds) in [
            ("30", 1800),
            ("90s", 90),
            ("1.5h", 5400),
            ("2:30", 150),
            ("1:00:00", 3600),
            ("1-12", 129_600),
            ("1-00:30", 88_200),
            ("2-01:02:03", 176_523),
        ] {
            assert_eq!(limit_ms(text), Ok(Some(seconds * 1000)), "{text}");
        }
        assert_eq!(limit_ms("unlimited"), Ok(None));
        for nonsense in ["", "x", "1:2:3:4", "-5", "1-", "5y"] {
            assert!(limit_ms(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn moments_and_dates_agree() {
        let noon = 1_900_000_000_000 / 86_400_000 * 86_400_000 + 12 * 3_600_000;
        assert_eq!(moment(&date(noon), 0), Ok(noon));
        assert_eq!(date(0), "1970-01-01T00:00:00");
        assert_eq!(date(951_782_400_000), "2000-02-29T00:00:00");
        assert_eq!(moment("now+2h", noon), Ok(noon + 7_200_000));
        assert_eq!(moment("13:00", noon), Ok(noon + 3_600_000));
        assert_eq!(moment("11:00", noon), Ok(noon + 23 * 3_600_000));
        assert!(moment("soon", noon).is_err());
    }

    #[test]
    fn dependencies_are_read_in_both_manners() {
        let found = after("afterok:17:18,any:19_2").unwrap().0;
        let kinds: Vec<(After, String)> = found.iter().map(|one| (one.kind, one.on.to_string())).collect();
        assert_eq!(kinds, [(After::Ok, "17".into()), (After::Ok, "18".into()), (After::Any, "19_2".into())]);
        for nonsense in ["", "17", "ok", "ok:", "later:17", "ok:x"] {
            assert!(after(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn arrays_and_memory_are_read() {
        let indices = |text| array(text).map(|array| (array.indices, array.at_most_at_once));
        assert_eq!(indices("0-3"), Ok((vec![0, 1, 2, 3], None)));
        assert_eq!(indices("1,5-9:2%4"), Ok((vec![1, 5, 7, 9], Some(4))));
        assert!(indices("5-1").is_err() && indices("0-99999999").is_err() && indices("").is_err());
        assert_eq!((memory_mib("500M"), memory_mib("4G"), memory_mib("7")), (Ok(500), Ok(4096), Ok(7)));
        assert!(memory_mib("lots").is_err());
    }
}
