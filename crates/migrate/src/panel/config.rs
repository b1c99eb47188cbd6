//! The `[migrate]` section: which jobs a page shows.

use std::path::PathBuf;

headworks_service::section! {
    /// Jobs of `headworks migrate`, for whoever looks after them. They run in processes of their
    /// own.
    pub struct MigrateConfig = "migrate";

    /// State files, and folders in which every `*.db` is one.
    jobs: Vec<PathBuf> = Vec::new(), example("[\"/var/lib/headworks/jobs\"]"), restart();
    /// Where a synthetic migration that the console starts keeps its state and its copy; without it
    /// a temporary folder.
    demo_folder: Option<PathBuf> = None, example("\"/tmp/headworks-demo\""), restart();
}
