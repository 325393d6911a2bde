//! `pulc nodes`: the cluster as the local daemon sees it, for people and (`--json`) for programs.

use crate::node_start::{client_place, failed};
use pulc_control::NodeInfo;
use pulc_psid::daemon;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// One JSON array
    #[arg(long)]
    json: bool,
    /// As the queue sees them: slots, features, jobs
    #[arg(short, long)]
    queue: bool,
}

pub fn run(args: &Args) -> ExitCode {
    if args.queue {
        return crate::queue::operator::show_nodes(args.json);
    }
    let nodes = match client_place().and_then(|place| daemon::nodes(&place)) {
        Ok(nodes) => nodes,
        Err(error) => return failed(&error),
    };
    print!("{}", if args.json { as_json(&nodes) } else { as_table(&nodes) });
    ExitCode::SUCCESS
}

fn as_table(nodes: &[NodeInfo]) -> String {
    let width = |text: fn(&NodeInfo) -> usize, title: &str| nodes.iter().map(text).max().unwrap_or(0).max(title.len());
    let names = width(|node| node.name.chars().count() + usize::from(node.me) * 2, "NAME");
    let addresses = width(|node| address(node).len(), "ADDRESS");
    let mut out = format!(
        "{:names$}  {:12}  {:addresses$}  {:7}  {:>5}  {:>6}  VERSION\n",
        "NAME", "ID", "ADDRESS", "STATE", "CORES", "LOAD"
    );
    for node in nodes {
        let name = if node.me { format!("{} *", node.name) } else { node.name.clone() };
        let load = f64::from(node.load_milli) / 1000.0;
        out += &format!(
            "{name:names$}  {:12}  {:addresses$}  {:7}  {:>5}  {load:>6.2}  {}\n",
            node.id.to_string(),
            address(node),
            node.state,
            node.cores,
            node.version
        );
    }
    out
}

fn address(node: &NodeInfo) -> String {
    node.addresses.first().map_or_else(|| "-".to_owned(), ToString::to_string)
}

fn as_json(nodes: &[NodeInfo]) -> String {
    let rows: Vec<_> = nodes
        .iter()
        .map(|node| {
            let id: String = node.id.0.iter().map(|byte| format!("{byte:02x}")).collect();
            serde_json::json!({
                "name": node.name,
                "id": id,
                "addresses": node.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "state": node.state.word(),
                "me": node.me,
                "cores": node.cores,
                "load": f64::from(node.load_milli) / 1000.0,
                "version": node.version,
            })
        })
        .collect();
    format!("{}\n", serde_json::Value::Array(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulc_base::NodeId;
    use pulc_control::NodeState;

    fn node() -> NodeInfo {
        NodeInfo {
            id: NodeId([0xab; 16]),
            name: "alpha \"1\"".to_owned(),
            addresses: vec!["10.0.0.1:7852".parse().unwrap()],
            state: NodeState::Torpid,
            me: true,
            cores: 4,
            load_milli: 1250,
            version: 1,
        }
    }

    #[test]
    fn the_table_lines_up_and_names_every_column() {
        let text = as_table(&[node()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].find("STATE"), lines[1].find("torpid"), "{text}");
        assert!(lines[1].contains("1.25") && lines[1].contains("abababababab"), "{text}");
    }

    #[test]
    fn json_escapes_names() {
        let value: serde_json::Value = serde_json::from_str(&as_json(&[node()])).unwrap();
        assert_eq!(value[0]["name"], "alpha \"1\"");
        assert_eq!(value[0]["load"], 1.25);
    }
}
