//! The fuzz targets on their corpus: what they read, and what they once stumbled over.

#[expect(unreachable_pub, reason = "the fuzz targets call it from outside")]
#[path = "../../../fuzz/src/targets.rs"]
mod targets;

use std::path::Path;

#[test]
fn every_target_takes_its_whole_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in targets::TARGETS {
        let entries = std::fs::read_dir(corpus.join(name)).expect("every target has a corpus");
        let mut count = 0;
        for entry in entries {
            let path = entry.expect("an entry").path();
            println!("{}", path.display());
            target(&std::fs::read(path).expect("it can be read"));
            count += 1;
        }
        assert!(count > 3, "the corpus of {name} has {count} entries");
    }
}
