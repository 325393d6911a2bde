//! `pulc config`: what is set for the whole cluster, shown or changed. The controller keeps it and gives it to every node.

use super::{ask, print, words};
use pulc_control::queue::{ClusterConfig, KEYS, QueueReply, QueueRequest, Setting};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// What is to be set, all of it or nothing; a key without a value gets its default; without any, all is shown
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Explain the keys
    #[arg(long, conflicts_with = "settings")]
    keys: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> ExitCode {
    if args.keys {
        let rows: Vec<Vec<String>> =
            KEYS.iter().map(|(key, text)| vec![(*key).to_owned(), (*text).to_owned()]).collect();
        return print(Ok(words::table(&["KEY", "MEANING"], &rows)));
    }
    let time = |text: &str| words::duration_ms(text, 1);
    let settings: Result<Vec<Setting>, String> =
        args.settings.iter().map(|setting| Setting::parse(setting, time)).collect();
    print(settings.and_then(|settings| match ask(QueueRequest::Config(settings))? {
        QueueReply::Config(config) => Ok(if args.json { json(&config) } else { text(&config) }),
        _ => Err("the daemon gave an answer to another question; use the same pulc for both".to_owned()),
    }))
}

fn text(config: &ClusterConfig) -> String {
    format!("# version {}\n{}", config.version, config.text())
}

fn json(config: &ClusterConfig) -> String {
    let value = serde_json::json!({
        "version": config.version,
        "health": {
            "program": config.health.program,
            "interval_ms": config.health.interval_ms,
            "timeout_ms": config.health.timeout_ms,
            "action": config.health.action.word(),
        },
        "networks": config.networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    format!("{value}\n")
}
