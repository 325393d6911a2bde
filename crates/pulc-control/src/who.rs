//! Whom a rule is for: a user, or all who are in a group. Rules of nodes and reservations are lists of numbers, in every log there is, so
//! a group is a number, too: its own with the highest bit set. No user's or group's number that is given out has that bit.

const IS_GROUP: u32 = 1 << 31;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    User(u32),
    Group(u32),
}

impl Who {
    /// As it stands in a list.
    ///
    /// # Errors
    /// One line, for numbers that nobody has.
    pub fn number(self) -> Result<u32, String> {
        match self {
            Who::User(uid) if uid & IS_GROUP == 0 => Ok(uid),
            Who::Group(gid) if gid & IS_GROUP == 0 => Ok(gid | IS_GROUP),
            Who::User(id) | Who::Group(id) => {
                Err(format!("{id} is too large for a user or a group here; it must be below {IS_GROUP}"))
            }
        }
    }

    pub fn of(number: u32) -> Who {
        if number & IS_GROUP == 0 { Who::User(number) } else { Who::Group(number & !IS_GROUP) }
    }

    /// Whether a list, which is for everybody if it is empty, has this user in it. `groups` is asked only if it has groups.
    pub fn any(list: &[u32], user: u32, groups: impl FnOnce() -> Vec<u32>) -> bool {
        if list.is_empty() || list.contains(&user) {
            return true;
        }
        if list.iter().all(|number| number & IS_GROUP == 0) {
            return false;
        }
        let groups = groups();
        list.iter().any(|number| matches!(Who::of(*number), Who::Group(gid) if groups.contains(&gid)))
    }
}

impl std::fmt::Display for Who {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Who::User(uid) => uid.fmt(formatter),
            Who::Group(gid) => write!(formatter, "@{gid}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_in_a_list_is_for_its_members_and_nobody_whose_number_it_is() {
        let physics = Who::Group(7).number().unwrap();
        assert_eq!((Who::of(physics), Who::of(7)), (Who::Group(7), Who::User(7)));
        assert_eq!([Who::Group(7), Who::User(7)].map(|who| who.to_string()), ["@7", "7"]);
        let list = [5, physics];
        assert!(Who::any(&list, 5, || unreachable!("a user is named")));
        assert!(Who::any(&list, 6, || vec![1, 7]));
        assert!(!Who::any(&list, 7, Vec::new) && !Who::any(&list, 6, || vec![5]));
        assert!(!Who::any(&[5], 6, || unreachable!("there are no groups")) && Who::any(&[], 6, Vec::new));
        assert!(Who::User(u32::MAX).number().is_err() && Who::Group(IS_GROUP).number().is_err());
    }
}
