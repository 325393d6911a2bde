//! `pulc drain`, `undrain`, `node`, `reserve`: what an operator says about nodes, and `pulc nodes --queue`, the nodes as the queue sees them.

use super::{ask, fail, print, words};
use pulc_control::queue::{NodePatch, QueueNode, QueueReply, QueueRequest, Reservation};
use pulc_control::who::Who;
use pulc_hal::os::account;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct DrainArgs {
    /// Nodes by name
    #[arg(required = true)]
    nodes: Vec<String>,
    /// Why, for those who see it
    #[arg(short, long, default_value = "an operator wants so")]
    reason: String,
}

#[derive(clap::Args)]
pub struct UndrainArgs {
    /// Nodes by name
    #[arg(required = true)]
    nodes: Vec<String>,
}

#[derive(clap::Args)]
pub struct NodeArgs {
    /// Node by name
    node: String,
    /// Processes that the queue may start there; auto: as many as it has cores
    #[arg(long, value_name = "N")]
    slots: Option<String>,
    /// Features that jobs can ask for; empty for none
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    features: Option<Vec<String>>,
    /// Users, and groups as @GROUP, whose jobs may run there, by name or number; empty for everybody's
    #[arg(long, value_name = "USER,@GROUP,…")]
    users: Option<String>,
}

#[derive(clap::Args)]
pub struct ReserveArgs {
    /// Name of the reservation; without one, all are shown
    name: Option<String>,
    /// Nodes by name [default: all]
    #[arg(short = 'w', long = "on", value_name = "NODE,…", value_delimiter = ',')]
    on: Vec<String>,
    /// From when: now, now+2h, 18:30 or 2031-05-04T18:30 (UTC)
    #[arg(long, value_name = "MOMENT", default_value = "now")]
    from: String,
    /// For how long
    #[arg(long = "for", value_name = "TIME", conflicts_with = "until")]
    length: Option<String>,
    /// Until when
    #[arg(long, value_name = "MOMENT")]
    until: Option<String>,
    /// Users, and groups as @GROUP, who may use it, by name or number [default: whoever names it]
    #[arg(long, value_name = "USER,@GROUP,…", value_delimiter = ',')]
    users: Vec<String>,
    /// Remove it
    #[arg(long)]
    remove: bool,
    /// One JSON array
    #[arg(long)]
    json: bool,
}

pub fn drain(args: DrainArgs) -> ExitCode {
    let patch = NodePatch { drained: Some(Some(args.reason)), ..NodePatch::default() };
    set_all(&args.nodes, &patch)
}

pub fn undrain(args: &UndrainArgs) -> ExitCode {
    set_all(&args.nodes, &NodePatch { drained: Some(None), ..NodePatch::default() })
}

fn set_all(nodes: &[String], patch: &NodePatch) -> ExitCode {
    for name in nodes {
        if let Err(why) = ask(QueueRequest::Node { name: name.clone(), patch: patch.clone() }) {
            return fail(&why);
        }
    }
    ExitCode::SUCCESS
}

pub fn node(args: NodeArgs) -> ExitCode {
    let patch = || -> Result<NodePatch, String> {
        let slots = match args.slots.as_deref() {
            None => None,
            Some("auto") => Some(None),
            Some(text) => {
                let count = text.parse().map_err(|_| format!("{text:?} is no number of slots; write one, or auto"))?;
                Some(Some(count))
            }
        };
        let users = args.users.as_deref().map(|text| {
            let words = text.split(',').filter(|word| !word.is_empty());
            words.map(number_of).collect::<Result<Vec<u32>, String>>()
        });
        let features =
            args.features.map(|names| names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<String>>());
        Ok(NodePatch { slots, features, users: users.transpose()?, drained: None })
    };
    let patch = match patch() {
        Ok(patch) if patch == NodePatch::default() => {
            return print(nodes().map(|mut nodes| {
                nodes.retain(|node| node.name == args.node);
                table(&nodes)
            }));
        }
        Ok(patch) => patch,
        Err(why) => return fail(&why),
    };
    set_all(&[args.node], &patch)
}

pub fn reserve(args: ReserveArgs) -> ExitCode {
    let Some(name) = args.name else { return print(reservations(args.json)) };
    if args.remove {
        return print(ask(QueueRequest::Unreserve(name)).map(|_| String::new()));
    }
    let now = words::now();
    let made = || -> Result<Reservation, String> {
        let from = words::moment(&args.from, now)?;
        let until = match (&args.length, &args.until) {
            (Some(length), _) => from + words::duration_ms(length, 60)?,
            (None, Some(until)) => words::moment(until, now)?,
            (None, None) => return Err("a reservation has an end; use --for TIME or --until MOMENT".to_owned()),
        };
        let users =
            args.users.iter().filter(|word| !word.is_empty()).map(|word| number_of(word)).collect::<Result<_, _>>()?;
        Ok(Reservation { name, nodes: args.on, from, until, users })
    };
    print(made().and_then(|reservation| ask(QueueRequest::Reserve(reservation))).map(|_| String::new()))
}

fn reservations(json: bool) -> Result<String, String> {
    let QueueReply::Reservations(all) = ask(QueueRequest::Reservations)? else {
        return Err("the daemon gave an answer to another question; use the same pulc for both".to_owned());
    };
    if json {
        let mut rows = serde_json::to_value(&all).map_err(|error| error.to_string())?;
        for (row, one) in rows.as_array_mut().into_iter().flatten().zip(&all) {
            row["users"] = whose(&one.users);
        }
        return Ok(format!("{rows}\n"));
    }
    if all.is_empty() {
        return Ok("no reservations\n".to_owned());
    }
    let or_all = |list: Vec<String>, all: &str| if list.is_empty() { all.to_owned() } else { list.join(",") };
    let rows: Vec<Vec<String>> = all
        .into_iter()
        .map(|one| {
            let users = one.users.iter().map(|number| Who::of(*number).to_string()).collect();
            vec![
                one.name,
                words::date(one.from),
                words::date(one.until),
                or_all(one.nodes, "all"),
                or_all(users, "all"),
            ]
        })
        .collect();
    Ok(words::table(&["NAME", "FROM (UTC)", "UNTIL (UTC)", "NODES", "USERS"], &rows))
}

/// # Errors
/// One line for the user.
pub fn nodes() -> Result<Vec<QueueNode>, String> {
    match ask(QueueRequest::Nodes)? {
        QueueReply::Nodes(nodes) => Ok(nodes),
        _ => Err("the daemon gave an answer to another question; use the same pulc for both".to_owned()),
    }
}

/// Nodes as the queue sees them.
pub fn show_nodes(as_json: bool) -> ExitCode {
    print(nodes().map(|nodes| if as_json { json(&nodes) } else { table(&nodes) }))
}

pub fn table(nodes: &[QueueNode]) -> String {
    let rows: Vec<Vec<String>> = nodes
        .iter()
        .map(|node| {
            let jobs: Vec<String> = node.jobs.iter().map(ToString::to_string).collect();
            vec![
                node.name.clone(),
                node.state.clone(),
                format!("{}/{}", node.used, node.slots),
                node.cores.to_string(),
                format!("{:.2}", f64::from(node.load_milli) / 1000.0),
                format!("{:.1} GiB", node.memory_mib as f64 / 1024.0),
                node.features.join(","),
                jobs.join(","),
                node.drained.clone().unwrap_or_default(),
            ]
        })
        .collect();
    words::table(&["NAME", "STATE", "USED", "CORES", "LOAD", "MEMORY", "FEATURES", "JOBS", "WHY DRAINED"], &rows)
}

fn json(nodes: &[QueueNode]) -> String {
    let rows: Vec<_> = nodes
        .iter()
        .map(|node| {
            serde_json::json!({
                "name": node.name,
                "state": node.state,
                "slots": node.slots,
                "used": node.used,
                "cores": node.cores,
                "load": f64::from(node.load_milli) / 1000.0,
                "memory_mib": node.memory_mib,
                "features": node.features,
                "users": whose(&node.users),
                "jobs": node.jobs,
                "drained": node.drained,
            })
        })
        .collect();
    format!("{}\n", serde_json::Value::Array(rows))
}

/// `alice`, `1000`, `@physics`, `@100`, as it stands in a rule.
fn number_of(word: &str) -> Result<u32, String> {
    let who = match word.strip_prefix('@') {
        Some(group) => Who::Group(match group.parse() {
            Ok(gid) => gid,
            Err(_) => account::group_by_name(group)
                .map_err(|error| format!("group {group:?} cannot be looked up: {error}"))?
                .ok_or_else(|| format!("there is no group {group:?} on this machine; a number would do, @100"))?,
        }),
        None => Who::User(match word.parse() {
            Ok(uid) => uid,
            Err(_) => account::by_name(word)
                .map_err(|error| format!("user {word:?} cannot be looked up: {error}"))?
                .map(|account| account.uid)
                .ok_or_else(|| {
                    format!("there is no user {word:?} on this machine; a number would do, or @GROUP for a group")
                })?,
        }),
    };
    who.number()
}

/// Users as numbers, groups as text.
fn whose(list: &[u32]) -> serde_json::Value {
    let value = |number: &u32| -> serde_json::Value {
        match Who::of(*number) {
            Who::User(uid) => uid.into(),
            group @ Who::Group(_) => group.to_string().into(),
        }
    };
    list.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_known_by_name_and_number() {
        let who = |word: &str| number_of(word).map(Who::of);
        assert_eq!([who("root"), who("0"), who("1000")], [0, 0, 1000].map(|uid| Ok(Who::User(uid))));
        assert_eq!([who("@root"), who("@0"), who("@100")], [0, 0, 100].map(|gid| Ok(Who::Group(gid))));
        for (word, why) in
            [("no-such", "there is no user"), ("@no-such", "there is no group"), ("@", "there is no group")]
        {
            assert!(who(word).unwrap_err().contains(why), "{word}");
        }
        assert!(who("4294967295").unwrap_err().contains("too large"));
        assert_eq!(whose(&[7, number_of("@8").unwrap()]), serde_json::json!([7, "@8"]));
    }
}
