//! Understands what `cargo test` prints: which suite runs, what it counted, which tests were ignored and why. Called by
//! `test`. Pure; the output is handed in line by line.

/// Collects results suite by suite.
#[derive(Default)]
pub struct Results {
    pub suites: Vec<Suite>,
    /// `suite: test, reason`
    pub ignored: Vec<String>,
    pub failed: Vec<String>,
}

/// One test binary, or the documentation's examples of one crate.
#[derive(Debug, PartialEq, Eq)]
pub struct Suite {
    pub name: String,
    pub passed: u32,
    pub failed: u32,
    pub ignored: u32,
    pub took: String,
    finished: bool,
}

impl Results {
    pub fn line(&mut self, line: &str) {
        let text = line.trim();
        if let Some(name) = suite_name(text) {
            let suite = Suite { name, passed: 0, failed: 0, ignored: 0, took: String::new(), finished: false };
            self.suites.push(suite);
        } else if let Some(rest) = text.strip_prefix("test result: ") {
            let Some(suite) = self.suites.last_mut() else { return };
            for part in rest.split([';', '.']).map(str::trim) {
                let Some((number, word)) = part.split_once(' ') else { continue };
                match (number.parse(), word) {
                    (Ok(count), "passed") => suite.passed = count,
                    (Ok(count), "failed") => suite.failed = count,
                    (Ok(count), "ignored") => suite.ignored = count,
                    _ => {}
                }
            }
            suite.took = rest.rsplit_once("finished in ").map_or_else(String::new, |(_, took)| took.to_string());
            suite.finished = true;
        } else if let Some(rest) = text.strip_prefix("test ") {
            let name = self.suites.last().map_or("?", |suite| &suite.name);
            if let Some((test, why)) = rest.split_once(" ... ignored") {
                let why = why.trim_start_matches([',', ' ']);
                self.ignored.push(format!("{name} {test}: {}", if why.is_empty() { "no reason given" } else { why }));
            } else if let Some(test) = rest.strip_suffix(" ... FAILED") {
                self.failed.push(format!("{name} {test}"));
            }
        }
    }

    /// Whether every suite came to its end, so that `failed` names all that did.
    pub fn is_complete(&self) -> bool {
        self.suites.iter().all(|suite| suite.finished)
    }

    pub fn passed(&self) -> u32 {
        self.suites.iter().map(|suite| suite.passed).sum()
    }

    /// As `cargo test -- --exact` takes them.
    pub fn names_of_failed(&self) -> impl Iterator<Item = &str> {
        self.failed.iter().filter_map(|line| line.rsplit_once(' ')).map(|(_, test)| test)
    }

    /// One line a suite that has tests, then the sums.
    pub fn table(&self) -> String {
        let mut text = format!("{:>7} {:>6} {:>7} {:>9}  suite\n", "passed", "failed", "ignored", "time");
        for suite in self.suites.iter().filter(|suite| !suite.finished || suite.count() > 0) {
            let Suite { passed, failed, ignored, took, .. } = suite;
            let end = if suite.finished { "" } else { "  (did not finish)" };
            text += &format!("{passed:7} {failed:6} {ignored:7} {took:>9}  {}{end}\n", suite.name);
        }
        let sum = |of: fn(&Suite) -> u32| self.suites.iter().map(of).sum::<u32>();
        text += &format!("{:7} {:6} {:7}            total\n", sum(|s| s.passed), sum(|s| s.failed), sum(|s| s.ignored));
        text
    }
}

impl Suite {
    fn count(&self) -> u32 {
        self.passed + self.failed + self.ignored
    }
}

/// `Running unittests src/lib.rs (target/debug/deps/pulc_base-0f1e…)` or `Doc-tests pulc_base`.
fn suite_name(text: &str) -> Option<String> {
    if let Some(name) = text.strip_prefix("Doc-tests ") {
        return Some(format!("{name} (documentation)"));
    }
    let (what, path) = text.strip_prefix("Running ")?.rsplit_once(" (")?;
    let file = path.strip_suffix(')')?.rsplit('/').next()?;
    let name = file.rsplit_once('-').map_or(file, |(name, _)| name);
    let source = what.strip_prefix("unittests ").unwrap_or(what);
    Some(if what.starts_with("unittests") { format!("{name} ({source})") } else { source.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
   Compiling pulc-base v0.1.0
     Running unittests src/lib.rs (target/debug/deps/pulc_base-1f2e3d)
running 3 tests
test boot::tests::a ... ok
test boot::tests::b ... ignored, needs two cores
test boot::tests::c ... FAILED
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
     Running tests/conformance.rs (target/debug/deps/conformance-77aa)
test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s
   Doc-tests pulc_base
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/broken.rs (target/debug/deps/broken-77aa)
";

    #[test]
    fn suites_counts_and_reasons_are_read_from_cargos_output() {
        let mut results = Results::default();
        OUTPUT.lines().for_each(|line| results.line(line));
        let names: Vec<_> = results.suites.iter().map(|suite| suite.name.as_str()).collect();
        assert_eq!(
            names,
            ["pulc_base (src/lib.rs)", "tests/conformance.rs", "pulc_base (documentation)", "tests/broken.rs"]
        );
        assert_eq!((results.suites[0].passed, results.suites[0].failed, results.suites[0].ignored), (1, 1, 1));
        assert_eq!(results.suites[1].took, "1.20s");
        assert_eq!(results.ignored, ["pulc_base (src/lib.rs) boot::tests::b: needs two cores"]);
        assert_eq!(results.failed, ["pulc_base (src/lib.rs) boot::tests::c"]);
        assert_eq!(results.names_of_failed().collect::<Vec<_>>(), ["boot::tests::c"]);
        assert_eq!((results.is_complete(), results.passed()), (false, 13));
        let table = results.table();
        assert!(table.contains("tests/broken.rs  (did not finish)"), "{table}");
        assert!(!table.contains("documentation"), "empty suites are left out: {table}");
        assert!(table.contains("     13      1       1            total"), "{table}");
    }
}
