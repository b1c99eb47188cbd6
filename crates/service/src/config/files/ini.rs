//! INI files in the format of the gateway's predecessor: headers, `key = value`, comments.

use std::path::PathBuf;
use std::sync::Arc;

use super::LegacyKey;
use crate::config::node::Node;
use crate::config::origin::Origin;
use crate::config::problem::Problem;

pub(super) fn parse(path: &Arc<PathBuf>, text: &str) -> (Vec<LegacyKey>, Vec<Problem>) {
    let (mut keys, mut problems) = (Vec::new(), Vec::new());
    let mut header = None;
    for (n, line) in text.lines().enumerate() {
        let origin = Origin::line(path, n + 1);
        // Some editors start a file with a byte order mark.
        let line = line.trim().trim_start_matches('\u{feff}');
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            header = Some(name.trim().to_owned());
        } else if let Some((name, value)) = line.split_once(['=', ':']) {
            let node = Node::text(origin, unquoted(uncommented(value)));
            let name = name.trim().to_owned();
            keys.push(LegacyKey {
                header: header.clone(),
                name,
                node,
            });
        } else {
            let problem = Problem::new(origin, "", "neither a [header] nor `key = value`");
            problems.push(problem.remedy("start a comment with # or ;"));
        }
    }
    (keys, problems)
}

/// Strips a trailing comment. It must follow a space or tab, so that `a;b` stays whole.
fn uncommented(value: &str) -> &str {
    let marks = [" #", " ;", "\t#", "\t;"];
    let end = marks.iter().filter_map(|mark| value.find(mark)).min();
    value[..end.unwrap_or(value.len())].trim()
}

fn unquoted(value: &str) -> &str {
    ['"', '\'']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote))
        .unwrap_or(value)
}
