//! The machine: open files and the clock.

use std::time::{Duration, SystemTime};

use headworks_gateway::GatewayConfig;
use headworks_service::config::Config;
use headworks_tracker::TrackerConfig;
use rustix::process::{Resource, getrlimit};

use super::finding::Finding;

/// Seconds since 1970 on 2026-01-01. Certificates and signatures are refused before.
const BUILT_AFTER: u64 = 1_767_225_600;
/// Open files that the rest of the program needs.
const OTHERS: usize = 512;

pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let gateway = config.section::<GatewayConfig>().max_connections;
    let tracker = config.section::<TrackerConfig>().max_connections;
    let wanted = gateway + tracker + OTHERS;
    // The soft limit is raised at the start, so the hard one counts.
    let most = getrlimit(Resource::Nofile).maximum;
    vec![open_files(wanted as u64, most), clock()]
}

fn open_files(wanted: u64, most: Option<u64>) -> Finding {
    let subject = "open files";
    match most {
        Some(most) if most < wanted => Finding::warning(
            subject,
            format!("at most {most}; {wanted} connections and files are configured"),
        )
        .advise(
            "raise the limit (LimitNOFILE= of the systemd unit, `ulimit -Hn`), or lower \
             `gateway.max_connections` and `tracker.max_connections`",
        ),
        Some(most) => Finding::ok(subject, format!("at most {most}")),
        None => Finding::ok(subject, "no limit"),
    }
}

fn clock() -> Finding {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    match now {
        Ok(now) if now > Duration::from_secs(BUILT_AFTER) => {
            Finding::ok("clock", "after the build of this program")
        }
        _ => Finding::problem("clock", "before the build of this program")
            .advise("set it: TLS certificates, signed requests and time rules depend on it"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    #[test]
    fn a_low_limit_of_open_files_is_named() {
        assert_eq!(open_files(100, Some(99)).state, Severity::Warning);
        assert_eq!(open_files(100, Some(100)).state, Severity::Ok);
        assert_eq!(open_files(100, None).state, Severity::Ok);
    }
}
