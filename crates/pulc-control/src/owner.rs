//! Whose a job is, where one daemon serves several users: number, name and groups, as the daemon where it was asked for has them from the kernel and the
//! system's user database. Travels as one variable of the job's environment, put there by that daemon alone (what a client has put there
//! is taken out first) and taken out before ranks see it: a new field of a launch would have made every log of a controller unreadable.

use crate::message::LaunchSpec;

/// What psids, and nobody else, say about a job.
const ENV_OWNER: &str = "PULC_OWNER";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    pub uid: u32,
    pub name: String,
    /// All its groups at that moment.
    pub groups: Vec<u32>,
}

impl Owner {
    /// The owner of a launch, if it has one that makes sense.
    pub fn of(launch: &LaunchSpec) -> Option<Owner> {
        let (_, value) = launch.env.iter().rfind(|(name, _)| name == ENV_OWNER.as_bytes())?;
        let mut parts = std::str::from_utf8(value).ok()?.splitn(3, ':');
        let uid = parts.next()?.parse().ok()?;
        // A name may have anything in it but what ends it.
        let (groups, name) = (parts.next()?, parts.next()?);
        let groups =
            groups.split(',').filter(|group| !group.is_empty()).map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Owner { uid, name: name.to_owned(), groups })
    }

    /// The groups of whoever a job is of; none where nobody has said so.
    pub fn groups_of(launch: &LaunchSpec) -> Vec<u32> {
        Owner::of(launch).map(|owner| owner.groups).unwrap_or_default()
    }

    pub fn put(&self, launch: &mut LaunchSpec) {
        Owner::take_out(launch);
        let groups: Vec<String> = self.groups.iter().map(ToString::to_string).collect();
        let text = format!("{}:{}:{}", self.uid, groups.join(","), self.name);
        launch.env.push((ENV_OWNER.as_bytes().to_vec(), text.into_bytes()));
    }

    pub fn take_out(launch: &mut LaunchSpec) {
        launch.env.retain(|(name, _)| name != ENV_OWNER.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_as_it_was_put_and_what_a_client_has_put_is_gone() {
        let mut launch = LaunchSpec {
            argv: Vec::new(),
            env: vec![(ENV_OWNER.into(), b"0::root".to_vec()), (b"A".to_vec(), b"1".to_vec())],
            cwd: Vec::new(),
            umask: 0,
            limits: Vec::new(),
            pin: false,
            kill_delay_ms: 0,
        };
        for groups in [vec![], vec![7], vec![7, 1000]] {
            let owner = Owner { uid: 1000, name: "a:b".to_owned(), groups };
            owner.put(&mut launch);
            assert_eq!(Owner::of(&launch), Some(owner));
            assert_eq!(launch.env.len(), 2);
        }
        for wrong in ["", "1", "1:", "x::a", "1:x:a"] {
            launch.env = vec![(ENV_OWNER.into(), wrong.into())];
            assert_eq!(Owner::of(&launch), None, "{wrong}");
        }
        Owner::take_out(&mut launch);
        assert!(launch.env.is_empty());
    }
}
