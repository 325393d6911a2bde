//! Options inside of a script: lines `#PULC …` and `#SBATCH …` before its first command. Pure. What is said on the command line counts
//! more.

/// One line of options.
#[derive(Debug, PartialEq, Eq)]
pub struct Directive {
    pub words: Vec<String>,
    /// Written for another system: what is not understood is left out with a warning.
    pub foreign: bool,
    pub line: usize,
}

/// The directives of a script's text.
///
/// # Errors
/// One line for the user.
pub fn find(text: &str) -> Result<Vec<Directive>, String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim())) {
        if !line.starts_with('#') && !line.is_empty() {
            break;
        }
        let options = line.strip_prefix("#PULC").map(|rest| (rest, false));
        let options = options.or_else(|| line.strip_prefix("#SBATCH").map(|rest| (rest, true)));
        let Some((rest, foreign)) = options.filter(|(rest, _)| rest.starts_with([' ', '\t'])) else { continue };
        let words = split(rest).map_err(|why| format!("line {number}: {why}"))?;
        if !words.is_empty() {
            found.push(Directive { words, foreign, line: number });
        }
    }
    Ok(found)
}

/// Words as a shell makes them of spaces and quotes; the rest behind ` #` is a comment.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quotation mark is not closed".to_owned());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_end_with_the_first_command() {
        let text =
            "#!/bin/sh\n# a word\n#PULC -n 4 -J 'two words' # why\n\n#SBATCH --time=10\n#PULCX no\necho\n#PULC -n 9\n";
        let found = find(text).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].words, ["-n", "4", "-J", "two words"]);
        assert_eq!((found[1].words[0].as_str(), found[1].foreign, found[1].line), ("--time=10", true, 5));
        assert!(find("#PULC -J 'open\n").is_err());
    }
}
