//! Which users' sockets may meet in the system's broker. Said once, by whoever starts that psid; nothing is allowed otherwise. Parsed here, asked by
//! `across`.

/// Pairs of users; `None` stands for everybody.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    pairs: Vec<(Option<u32>, Option<u32>)>,
}

/// More are not read.
const PAIRS_MAX: usize = 256;
const EVERYBODY: &str = "*";

impl Policy {
    /// Pairs with commas between them, `33:1000,105:*`: numbers of users, or `*` for all.
    ///
    /// # Errors
    /// One line that names what is wrong.
    pub fn parse(text: &str) -> Result<Policy, String> {
        let pairs: Vec<&str> = text.split(',').map(str::trim).collect();
        if pairs.len() > PAIRS_MAX {
            return Err(format!("{} pairs of users; {PAIRS_MAX} are possible", pairs.len()));
        }
        let user = |text: &str| match text {
            EVERYBODY => Ok(None),
            _ => text.parse().map(Some).map_err(|_| format!("{text:?} is no number of a user and not `*`")),
        };
        let pair = |text: &&str| {
            let (one, other) =
                text.split_once(':').ok_or_else(|| format!("{text:?} is no pair of users; write 33:1000"))?;
            Ok((user(one)?, user(other)?))
        };
        Ok(Policy { pairs: pairs.iter().map(pair).collect::<Result<_, String>>()? })
    }

    /// Whether ends of these users may share memory, whoever of them has called the other.
    pub fn allows(&self, one: u32, other: u32) -> bool {
        let is = |said: Option<u32>, user: u32| said.is_none_or(|said| said == user);
        self.pairs.iter().any(|(a, b)| is(*a, one) && is(*b, other) || is(*a, other) && is(*b, one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_allow_in_both_directions_and_nobody_else() {
        let policy = Policy::parse("33:1000, 105:*").unwrap();
        assert!(policy.allows(33, 1000) && policy.allows(1000, 33));
        assert!(policy.allows(105, 7) && policy.allows(7, 105));
        assert!(!policy.allows(33, 1001) && !policy.allows(1000, 1001));
        assert!(Policy::parse("*:*").unwrap().allows(1, 2));
        for nonsense in ["", "33", "33:", "redis:33", "1:2:3", "1:2,"] {
            assert!(Policy::parse(nonsense).is_err(), "{nonsense}");
        }
    }
}
