//! Files and folders that the configuration names: those to read exist, those to write are in
//! folders that can be written to.

use std::path::Path;

use headworks_gateway::{FleetConfig, GatewayConfig, KeyFile};
use headworks_migrate::MigrateConfig;
use headworks_service::config::Config;
use headworks_tracker::{TrackerConfig, forwarders};
use rustix::fs::{Access, access};

use super::finding::Finding;

pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let gateway = config.section::<GatewayConfig>();
    let tracker = config.section::<TrackerConfig>();
    let mut findings = Vec::new();
    let in_fleet = config.section::<FleetConfig>().url.is_some();
    match &gateway.keys_file {
        Some(path) => findings.push(keys(path, gateway.scheduler_priority_levels)),
        None if gateway.key.is_empty() && !gateway.open && !in_fleet => {
            let found = "no keys: every request gets 401";
            let advice = "create one with `headworks gateway key add --tenant NAME`, or set \
                          `gateway.open` to serve everybody on this machine";
            findings.push(Finding::warning("gateway", found).advise(advice));
        }
        None => {}
    }
    let written = [
        ("gateway.usage_file", &gateway.usage_file),
        ("gateway.request_log", &gateway.request_log),
        ("tracker.snapshot_file", &tracker.snapshot_file),
    ];
    for (key, path) in written {
        findings.extend(path.iter().map(|path| writable(key, path)));
    }
    let read = [
        ("tracker.allow_hashes_file", &tracker.allow_hashes_file),
        ("tracker.deny_hashes_file", &tracker.deny_hashes_file),
        ("tracker.never_forward_file", &tracker.never_forward_file),
    ];
    for (key, path) in read {
        findings.extend(path.iter().map(|path| readable(key, path)));
    }
    let lists = tracker.forwarder_lists.iter().map(Path::new);
    let lists = tracker.forwarders_file.as_deref().into_iter().chain(lists);
    // Lists at URLs are fetched by `headworks tracker check`.
    let local = lists.filter(|list| !list.to_string_lossy().contains("://"));
    findings.extend(local.map(forwarder_list));
    let jobs = &config.section::<MigrateConfig>().jobs;
    findings.extend(jobs.iter().map(|path| readable("migrate.jobs", path)));
    findings
}

fn keys(path: &Path, levels: u8) -> Finding {
    let subject = named("gateway.keys_file", path);
    match KeyFile::read(path, levels) {
        Ok(file) if file.key.is_empty() => Finding::warning(
            subject,
            "no keys: every request gets 401 unless `gateway.key` has some",
        )
        .advise("create one with `headworks gateway key add --tenant NAME`"),
        Ok(file) => Finding::ok(subject, format!("{} keys", file.key.len())),
        Err(error) => Finding::problem(subject, error.to_string()),
    }
}

fn forwarder_list(path: &Path) -> Finding {
    let subject = named("forwarders", path);
    match forwarders::read(path) {
        Ok(list) if list.forwarders.is_empty() => {
            Finding::warning(subject, "no usable forwarder in it")
        }
        Ok(list) => Finding::ok(
            subject,
            format!(
                "{} forwarders, {} entries skipped",
                list.forwarders.len(),
                list.skipped.len()
            ),
        ),
        Err(error) => Finding::problem(subject, error.to_string()),
    }
}

fn readable(key: &str, path: &Path) -> Finding {
    let subject = named(key, path);
    match access(path, Access::READ_OK) {
        Ok(()) => Finding::ok(subject, "can be read"),
        Err(error) => Finding::problem(subject, format!("cannot be read: {error}")),
    }
}

fn writable(key: &str, path: &Path) -> Finding {
    let subject = named(key, path);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // A file that is replaced is written beside the old one, so its folder counts, too.
    let parts = [Some(folder), Some(path).filter(|path| path.exists())];
    for part in parts.into_iter().flatten() {
        if let Err(error) = access(part, Access::WRITE_OK) {
            let found = format!("`{}` cannot be written to: {error}", part.display());
            let advice = "create the folder, or change its owner to the user that runs Headworks";
            return Finding::problem(subject, found).advise(advice);
        }
    }
    Finding::ok(subject, "can be written")
}

fn named(key: &str, path: &Path) -> String {
    format!("{key} {}", path.display())
}
