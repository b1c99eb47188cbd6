//! The configuration of `headworks up --demo`, in a temporary folder of its own.
//!
//! The file is an ordinary configuration that can be read and copied. The folder also receives the
//! copy that the synthetic migration makes, and is removed when the program ends.

use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::chat::Keys;
use super::forwarders::{self, Forwarder};

/// The folder and what the demo needs of it.
pub(crate) struct DemoFiles {
    folder: PathBuf,
    keys: Keys,
    forwarders: Vec<Forwarder>,
}

impl DemoFiles {
    /// Writes the files, and opens the ports of the forwarders that they name.
    pub(crate) fn write() -> Result<DemoFiles> {
        // Before there is a folder that would have to be removed.
        let forwarders = forwarders::open()?;
        let name = format!("headworks-demo-{}-{:08x}", std::process::id(), random());
        let folder = std::env::temp_dir().join(name);
        // For this user only: the configuration contains keys. Fails if somebody else made it.
        DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("no folder for the demo at {}", folder.display()))?;
        let files = DemoFiles {
            folder,
            keys: Keys::random(random),
            forwarders,
        };
        files.put("forwarders.yml", &forwarders::list(&files.forwarders))?;
        files.put("headworks.toml", &files.configuration())?;
        Ok(files)
    }

    fn put(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The configuration file.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.join("headworks.toml")
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Hands over the keys and the forwarders.
    pub(super) fn take(&mut self) -> (Keys, Vec<Forwarder>) {
        (self.keys.clone(), std::mem::take(&mut self.forwarders))
    }

    fn configuration(&self) -> String {
        let mut text = String::from(
            "# Written by `headworks up --demo`: three tenants share a slow built-in model, and the\n\
             # tracker asks forwarders that misbehave.\n\
             [gateway]\n\
             scheduler_max_concurrent = 6\n\
             scheduler_max_queue_depth = 40\n\n\
             [[gateway.upstream]]\n\
             name = \"model\"\nkind = \"echo\"\nmodels = [\"model\"]\n\
             latency = \"150ms\"\ntoken_time = \"4ms\"\n\n\
             # The demo has it answer 429 now and then.\n\
             [[gateway.upstream]]\n\
             name = \"limited\"\nkind = \"echo\"\nmodels = [\"limited\"]\nlatency = \"50ms\"\n\n",
        );
        for (tenant, class, weight, key) in self.keys.all() {
            let _ = write!(
                text,
                "[[gateway.tenant]]\nname = \"{tenant}\"\nweight = {weight}\n\n\
                 [[gateway.key]]\nid = \"demo-{tenant}\"\nprefix = \"{key}\"\n\
                 tenant = \"{tenant}\"\nclass = {class}\n\n"
            );
        }
        text.push_str("[tracker]\nforwarders_file = \"forwarders.yml\"\n\n");
        text.push_str("[migrate]\ndemo_folder = \"migration\"\n");
        text
    }
}

impl Drop for DemoFiles {
    fn drop(&mut self) {
        // The last step of the program: nobody is left who could be told of an error.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn random() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    // Seeded by the system, like every hash map of this process.
    RandomState::new().hash_one(0) as u32
}
