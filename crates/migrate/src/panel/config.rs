//! The `[migrate]` section of the configuration: the jobs that the console shows, and the folder of
//! its demo.

use std::path::PathBuf;

headworks_service::section! {
    /// Jobs of `headworks migrate` that the console shows. They run in their own processes.
    pub struct MigrateConfig = "migrate";

    /// State files, or folders in which every `*.db` is a state file.
    jobs: Vec<PathBuf> = Vec::new(), example("[\"/var/lib/headworks/jobs\"]"), restart();
    /// Folder for the state and the copy of a synthetic migration that the console starts; by
    /// default a temporary folder.
    demo_folder: Option<PathBuf> = None, example("\"/tmp/headworks-demo\""), restart();
}
