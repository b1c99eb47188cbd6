//! The layout of the source: no circles between modules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns the Rust files below a folder, without tests.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.extension().is_some_and(|end| end == "rs") && !is_test {
            all.push(path);
        }
    }
    all
}

/// Returns the names that follow a prefix such as `crate::`, outside of comments and tests.
fn names_after(path: &Path, prefix: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let code = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let mut names = Vec::new();
    for line in code {
        for rest in line.split(prefix).skip(1) {
            let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_');
            names.extend(name.take(1).map(str::to_owned));
        }
    }
    names
}

/// Returns the modules directly below a folder, with the siblings that each of them names.
fn graph(folder: &Path, prefix: &str) -> Graph {
    let mut graph = Graph::new();
    for path in files(folder) {
        let relative = path.strip_prefix(folder).unwrap();
        let first = relative.components().next().unwrap().as_os_str();
        let module = first.to_str().unwrap().trim_end_matches(".rs").to_owned();
        // The roots only declare modules and wire them.
        if !["lib", "mod", "fuzzing"].contains(&module.as_str()) {
            graph
                .entry(module)
                .or_default()
                .extend(names_after(&path, prefix));
        }
    }
    let modules: BTreeSet<String> = graph.keys().cloned().collect();
    for (module, names) in &mut graph {
        names.retain(|name| name != module && modules.contains(name));
    }
    graph
}

/// Returns the modules that are part of a circle: what is left when those that depend on nothing
/// are removed, again and again.
fn circles(mut graph: Graph) -> Graph {
    loop {
        let free: BTreeSet<String> = (graph.iter())
            .filter(|(_, names)| names.is_empty())
            .map(|(module, _)| module.clone())
            .collect();
        if free.is_empty() {
            return graph;
        }
        graph.retain(|module, _| !free.contains(module));
        for names in graph.values_mut() {
            names.retain(|name| !free.contains(name));
        }
    }
}

#[test]
fn no_module_depends_on_itself_by_way_of_others() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let all = graph(&source, "crate::");
    assert!(all["announce"].contains("forward"), "{all:?}");
    let left = circles(all);
    assert!(
        left.is_empty(),
        "in a circle, or dependent on one: {left:#?}"
    );
    for folder in [
        "forward",
        "swarms",
        "forwarders",
        "client",
        "snapshot",
        "serve",
        "serve/http",
    ] {
        let left = circles(graph(&source.join(folder), "super::"));
        assert!(
            left.is_empty(),
            "{folder}: in a circle, or dependent on one: {left:#?}"
        );
    }
}
