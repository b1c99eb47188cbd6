//! Two trees listed side by side.

use headworks_pool::traversal::{
    Adapter, CoordinatedTraversal, ListError, TraversalConfig, Traversed,
};
use headworks_pool::{Side, rounds::RoundsError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// Nodes below 40 have three children each: 1 + 3 + 9 + 27 + 81 in all.
fn children(node: u64) -> Vec<u64> {
    if node < 40 {
        (3 * node + 1..=3 * node + 3).collect()
    } else {
        Vec::new()
    }
}

fn depth(node: u64) -> u32 {
    if node == 0 {
        0
    } else {
        1 + depth((node - 1) / 3)
    }
}

const NODES: usize = 121;

type Log = Arc<Mutex<Vec<(Side, u64)>>>;

/// Lists the tree, and takes a while that differs from node to node.
struct Tree {
    side: Side,
    log: Log,
}

impl Adapter<u64> for Tree {
    async fn list(&self, node: &u64) -> Result<Vec<u64>, ListError> {
        tokio::time::sleep(Duration::from_millis(node * 7 % 23)).await;
        self.log.lock().unwrap().push((self.side, *node));
        Ok(children(*node))
    }
}

fn trees() -> (Tree, Tree, Log) {
    let log = Log::default();
    let tree = |side| Tree {
        side,
        log: log.clone(),
    };
    (tree(Side::Leader), tree(Side::Follower), log.clone())
}

fn start(leader: impl Adapter<u64>, follower: impl Adapter<u64>) -> CoordinatedTraversal<u64> {
    let config = TraversalConfig::default();
    CoordinatedTraversal::start(config, (leader, vec![0]), (follower, vec![0])).unwrap()
}

#[tokio::test(start_paused = true)]
async fn both_sides_are_listed_once_and_the_leader_is_always_ahead() {
    let (leader, follower, log) = trees();
    let end = start(leader, follower).finished().await;
    assert!(end.completed && end.failed.is_empty());
    assert_eq!(end.listed, (NODES as u64, NODES as u64));
    let log = log.lock().unwrap();
    let mut listed = BTreeMap::new();
    let mut leader_open = 0;
    let mut follower_open = 0;
    for (side, node) in log.iter() {
        assert!(
            listed.insert((*side == Side::Leader, *node), ()).is_none(),
            "listed twice"
        );
        match side {
            Side::Leader => leader_open = leader_open.max(depth(*node)),
            Side::Follower => {
                follower_open = follower_open.max(depth(*node));
                assert!(
                    listed.contains_key(&(true, *node)),
                    "the leader listed {node} before"
                );
            }
        }
        assert!(
            leader_open <= follower_open + 4,
            "at most max_lead rounds ahead"
        );
    }
}

#[tokio::test]
async fn a_lead_below_the_lag_is_refused() {
    let (leader, follower, _) = trees();
    let mut config = TraversalConfig::default();
    (config.lag, config.max_lead) = (3, 2);
    let refused = CoordinatedTraversal::start(config, (leader, vec![0]), (follower, vec![0]));
    assert!(matches!(refused, Err(RoundsError::LeadBelowLag { .. })));
}

/// Fails in a way that depends on the node.
struct Failing(AtomicU32);

impl Adapter<u64> for Failing {
    async fn list(&self, node: &u64) -> Result<Vec<u64>, ListError> {
        match node {
            // Twice, and then not any more.
            1 if self.0.fetch_add(1, Ordering::Relaxed) < 2 => Err("connection reset")?,
            2 => Err(ListError::permanent("permission denied")),
            3 => panic!("a bug of the adapter"),
            // For ever.
            4 => Err("timed out")?,
            _ => Ok(children(*node)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_or_named_and_the_rest_goes_on() {
    let (leader, _, log) = trees();
    let end: Traversed<u64> = start(leader, Failing(AtomicU32::new(0))).finished().await;
    assert!(end.completed);
    let mut failed: Vec<(u64, String)> = (end.failed.iter())
        .map(|failed| {
            assert_eq!(failed.side, Side::Follower);
            assert_eq!(failed.round, depth(*failed.node));
            (*failed.node, failed.error.to_string())
        })
        .collect();
    failed.sort();
    let expected = [
        (2, "permission denied"),
        (3, "the adapter panicked"),
        (4, "timed out"),
    ];
    let expected = expected.map(|(node, error)| (node, error.to_string()));
    assert_eq!(failed, expected);
    // Node 1 was listed in the end; of its three children one was not.
    assert_eq!(end.listed, (NODES as u64, 1 + 1 + 2 + 2 * 3 + 6 * 3));
    assert_eq!(log.lock().unwrap().len(), NODES);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_listed_while_it_is_paused() {
    let (leader, follower, log) = trees();
    let traversal = start(leader, follower);
    tokio::time::sleep(Duration::from_millis(60)).await;
    traversal.pause();
    // Listings that run take at most 22 ms.
    tokio::time::sleep(Duration::from_millis(30)).await;
    let before = log.lock().unwrap().len();
    assert!(before > 0 && before < 2 * NODES);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(log.lock().unwrap().len(), before);
    traversal.resume();
    assert_eq!(traversal.finished().await.listed.1, NODES as u64);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_both_sides_where_they_stand() {
    let (leader, follower, log) = trees();
    let traversal = start(leader, follower);
    tokio::time::sleep(Duration::from_millis(60)).await;
    traversal.stop();
    let end = traversal.finished().await;
    assert!(!end.completed);
    assert_eq!(
        end.listed.0 + end.listed.1,
        log.lock().unwrap().len() as u64
    );
    assert!(end.listed.0 < NODES as u64);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_traversal_leaves_no_worker_behind() {
    let (leader, follower, log) = trees();
    let traversal = start(leader, follower);
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert!(Arc::strong_count(&log) > 1);
    drop(traversal);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(Arc::strong_count(&log), 1, "the adapters are gone");
}

/// A node that asks the traversal for its progress as it is dropped.
struct Curious {
    number: u64,
    traversal: Weak<OnceLock<CoordinatedTraversal<Curious>>>,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Curious {
    fn drop(&mut self) {
        if let Some(traversal) = self.traversal.upgrade() {
            if let Some(traversal) = traversal.get() {
                let _ = traversal.progress(Side::Leader);
            }
        }
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

struct Shallow;

impl Adapter<Curious> for Shallow {
    async fn list(&self, node: &Curious) -> Result<Vec<Curious>, ListError> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        if node.number == 1 {
            Err("not now")?;
        }
        let below = children(node.number).into_iter().map(|number| Curious {
            number,
            traversal: node.traversal.clone(),
            dropped: node.dropped.clone(),
        });
        Ok(below.collect())
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_may_call_the_traversal_as_it_is_dropped() {
    let slot = Arc::new(OnceLock::new());
    let dropped = Arc::new(AtomicUsize::new(0));
    let root = || Curious {
        number: 0,
        traversal: Arc::downgrade(&slot),
        dropped: dropped.clone(),
    };
    let config = TraversalConfig::default();
    let roots = (vec![root()], vec![root()]);
    let traversal = CoordinatedTraversal::start(config, (Shallow, roots.0), (Shallow, roots.1));
    assert!(slot.set(traversal.unwrap()).is_ok());
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(
        dropped.load(Ordering::Relaxed) > NODES,
        "most nodes are done"
    );
    let progress = slot.get().unwrap().progress(Side::Follower);
    assert!(progress.iter().all(|round| round.remaining() == 0));
}

/// A folder on disk; what it holds is noted.
struct Disk {
    root: PathBuf,
    seen: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Adapter<PathBuf> for Disk {
    async fn list(&self, folder: &PathBuf) -> Result<Vec<PathBuf>, ListError> {
        let mut folders = Vec::new();
        for entry in std::fs::read_dir(self.root.join(folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path.clone());
            }
            self.seen.lock().unwrap().insert(path);
        }
        Ok(folders)
    }
}

/// The same tree as `find` sees it.
fn found_by_find(root: &Path) -> BTreeSet<PathBuf> {
    let output = std::process::Command::new("find")
        .arg(root)
        .args(["-mindepth", "1", "-printf", "%P\\n"])
        .output()
        .expect("find is part of every Linux");
    let lines = String::from_utf8(output.stdout).expect("names of a source tree are UTF-8");
    lines.lines().map(PathBuf::from).collect()
}

#[tokio::test]
async fn real_trees_are_seen_as_find_sees_them() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    let roots = [crates.join("src"), crates.join("tests")];
    let seen: [Arc<Mutex<BTreeSet<PathBuf>>>; 2] = Default::default();
    let disk = |side: usize| Disk {
        root: roots[side].clone(),
        seen: seen[side].clone(),
    };
    let start = vec![PathBuf::new()];
    let config = TraversalConfig::default();
    let traversal =
        CoordinatedTraversal::start(config, (disk(0), start.clone()), (disk(1), start)).unwrap();
    assert!(traversal.finished().await.completed);
    for (root, seen) in roots.iter().zip(&seen) {
        assert_eq!(*seen.lock().unwrap(), found_by_find(root));
    }
}
